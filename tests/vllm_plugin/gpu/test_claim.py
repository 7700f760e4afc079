"""A claim is a lock that tells who holds it that somebody waits."""

from __future__ import annotations

import threading

from dotllm.vllm_plugin.gpu.claim import Claims


def test_a_free_lock_is_taken_without_a_word() -> None:
    claims, lock = Claims(), threading.RLock()
    with claims.on(lock), claims.on(lock):
        assert claims.waiting[0] == 0
        taken = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        assert taken == [False]
    assert lock.acquire(blocking=False)


def test_who_holds_it_sees_that_it_is_wanted() -> None:
    claims, lock = Claims(), threading.RLock()
    held, seen, after = threading.Event(), [], []

    def work() -> None:
        with lock:
            held.set()
            while not claims.waiting[0]:
                pass
            seen.append(True)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert held.wait(20)
    with claims.on(lock):
        after.append(int(claims.waiting[0]))
    thread.join(20)
    assert seen == [True] and after == [0]
