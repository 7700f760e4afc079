"""Memo: it is bounded in bytes, keeps what is asked for, and is correct on any number of threads."""

from __future__ import annotations

import ast
import random
import threading
from pathlib import Path

from dotllm.memo import Memo, memoised

ROOT = Path(__file__).parent.parent


def test_the_page_says_how_much_all_memos_keep() -> None:
    total = 0
    for path in (ROOT / "src" / "dotllm").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "@memoised(" not in text:
            continue
        tree = ast.parse(text)
        named = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "memoised":
                limit = next(keyword.value for keyword in call.keywords if keyword.arg == "limit")
                total += eval(ast.unparse(named.get(ast.unparse(limit), limit)))
    page = (ROOT / "docs" / "compilation.md").read_text(encoding="utf-8")
    assert f"at most {total >> 20} MiB (`memo.py`)" in " ".join(page.split())


def test_remembers_what_is_asked_for_within_its_bytes() -> None:
    asked: list[int] = []

    @memoised(lambda value, number: len(value) + number % 3, limit=1000)
    def letters(number: int) -> str:
        """So many letters."""
        asked.append(number)
        return "x" * number

    assert letters.__doc__ == "So many letters."
    for number in range(1, 100):
        assert letters(7) == "x" * 7 and letters(number) == "x" * number
        assert 0 < letters.nbytes <= 1000
    assert asked.count(7) == 1
    asked.clear()
    letters(99), letters(1), letters(99)
    assert asked == [1]
    assert letters(600) == letters(600) and asked == [1, 600, 600]  # it alone is larger than its half of the limit
    letters.clear()
    assert (letters.nbytes, len(letters)) == (0, 0)


def test_many_threads() -> None:
    memo: Memo[[int, str], str] = Memo(lambda number, text: text * number, lambda value, *_: len(value), 3000)
    wrong: list[object] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            number, text = chance.randrange(60), chance.choice("abc")
            if memo(number, text) != text * number:
                wrong.append((number, text))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and memo.nbytes <= 3000
    kept = {**memo._old, **memo._young}
    assert memo.nbytes >= sum(size for _, size in kept.values())
