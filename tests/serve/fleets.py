"""A fleet of processes answers as one process does: `make fleets` starts each kind of fleet that vLLM runs on CPUs.

python -m tests.serve.fleets [KIND ...]     KIND: a key of `KINDS`, all by default. Their output goes to .cache/fleets.

Each server is asked the same requests twice, some greedy, some with a seed. ``one`` comes first, and the answers of all
other fleets are compared with its answers. The processes of a fleet share one store. A compile takes a second here, so
each line also says how many specifications the fleet has compiled. docs/testing.md has the table.

On a host with two GPUs, the variables FLAGS (``--dtype bfloat16``) and MODEL say how to serve what; answers need not be
the same there, because a batch's size changes rounding.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil

from dotllm.demo import model
from dotllm.demo.server import Server, ServerDied
from tests.serve import faults
from tests.serve.raw import complete, metrics, total, until
from tests.serve.specifications import CASES

FOLDER = Path(".cache/fleets")
NAMES = ("date", "email", "counters", "look-ahead", "two words", "flat", "array", "tuple", "union", "no tag twice")
PICKED = [case for case in CASES if case.name in (*NAMES, "nested", "references")]
REQUESTS = 4 * len(PICKED)
FAULTS = [{"needle": "", "do": "sleep", "seconds": 1.0}]
"""A second is longer than the store takes. A compile that finishes sooner does not wait for the store's answer."""


def connector(role: str = "kv_both") -> tuple[str, str]:
    """The flags for vLLM's KV connector that keeps the cache in files."""
    options = {"shared_storage_path": str(FOLDER / "kv")}
    config = {"kv_connector": "ExampleConnector", "kv_role": role, "kv_connector_extra_config": options}
    return "--kv-transfer-config", json.dumps(config)


TRACED = '{"mode": 2, "backend": "eager"}'
KINDS: dict[str, tuple[str, ...]] = {  # the flags of each server
    "one": (),
    "no prefix caching": ("--no-enable-prefix-caching",),
    "API servers": ("--api-server-count", "2"),
    "data parallel": ("--data-parallel-size", "2"),
    "data parallel, API servers": ("--data-parallel-size", "2", "--api-server-count", "2"),
    "hybrid balancer": (
        *("--data-parallel-size", "2", "--data-parallel-size-local", "2", "--data-parallel-hybrid-lb"),
        *("--api-server-count", "2"),
    ),
    "tensor parallel": ("--tensor-parallel-size", "2"),
    # vLLM creates the second stage's inputs during its warm-up, and on CPUs it does so only for traced models.
    "pipeline parallel": ("--pipeline-parallel-size", "2", "--no-enforce-eager", "--compilation-config", TRACED),
    "KV connector": connector(),
    "prefill and decode": connector("kv_consumer"),  # the flags of the engine that decodes
    "killed rank": ("--tensor-parallel-size", "2"),
    "pause": (),
    "sleep": (),
    "restart": (),
}


def ask(server: Server, number: int, max_tokens: int = 80) -> tuple[int, str, str]:
    """Status, answer, and finish reason (or what is wrong with the answer) of request ``number``."""
    case = PICKED[number % len(PICKED)]
    greedy = number // len(PICKED) % 2 == 0
    try:
        answer = complete(
            server, "fleet", prompt=f"Write {case.name} once more, please. " * 6 + str(number), seed=number,
            temperature=0.0 if greedy else 1.0, max_tokens=max_tokens, structured_outputs=case.offline(),
        )  # fmt: skip
    except (OSError, HTTPException, ValueError) as error:  # the server was killed
        return 0, "", repr(error)
    if answer.status != 200:
        return answer.status, "", str(answer.body)[:300]
    reason = answer.body["choices"][0]["finish_reason"]
    if reason == "stop":
        try:
            case.judge(answer.text)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:300]
    return answer.status, answer.text, reason


def ask_all(server: Server) -> list[Any]:
    """Send all requests, a dozen at a time."""
    with ThreadPoolExecutor(len(PICKED)) as pool:
        return list(pool.map(lambda number: ask(server, number), range(REQUESTS)))


@contextmanager
def interrupted(server: Server) -> Iterator[list[Any]]:
    """Send all requests; the block runs when a quarter is answered. The list has the answers after the block."""
    answers: list[Any] = []
    with ThreadPoolExecutor(len(PICKED)) as pool:
        asked = [pool.submit(ask, server, number) for number in range(REQUESTS)]
        until(lambda: sum(one.done() for one in asked) >= REQUESTS // 4)
        assert not all(one.done() for one in asked)
        yield answers
        answers += [one.result() for one in asked]


def post(server: Server, path: str) -> None:
    answer = complete(server, "fleet", path=path)
    assert answer.status == 200, (path, answer.body)


def compiles(server: Server) -> tuple[int, int]:
    """How many specifications the engines compiled, and how many they loaded from the store."""
    time.sleep(1.0)  # (/metrics lags by half a second)
    found = metrics(server)
    ok, cached = (total(found, "dotllm_compiles_total", outcome=outcome) for outcome in ("ok", "cached"))
    return int(ok), int(cached)


def all_stored(server: Server) -> None:
    """Wait until all indexes are stored, two seconds after their compiles; until then, other engines compile, too."""
    until(lambda: total(metrics(server), "dotllm_writes_total", level="store") >= len(PICKED))


def beside_pauses(server: Server) -> dict[str, list[Any]]:
    found = {}
    for mode in ("keep", "wait"):
        with interrupted(server) as answers:
            post(server, f"/pause?mode={mode}")
            time.sleep(1.0)
            post(server, "/resume")
        found[mode] = answers
    return found


def beside_sleep(server: Server) -> dict[str, list[Any]]:
    with interrupted(server) as answers:
        post(server, "/sleep?level=1&mode=keep")
        post(server, "/wake_up")
    post(server, "/reset_prefix_cache")
    return {"asleep": answers, "awake": ask_all(server)}


def end_a_rank(server: Server) -> None:
    """Kill the second rank under load. The server must end, and what it answers must be right."""
    with interrupted(server) as answers:
        ranks = [
            p for p in psutil.Process(server.process.pid).children(recursive=True) if "TP1" in " ".join(p.cmdline())
        ]
        assert ranks, "no process calls itself TP1"
        ranks[0].kill()
    server.process.wait(timeout=300)
    finished = [answer for answer in answers if answer[0] == 200]
    print(f"{len(finished)} of {REQUESTS} answered; the server ended with {server.process.returncode}", flush=True)
    assert len(finished) < REQUESTS and all(reason in ("stop", "length") for _, _, reason in finished), finished


def run(kind: str, made: Path) -> dict[str, Any]:
    """The answers of the fleet ``kind``, by moment, and how many specifications it compiled."""
    for name in ("store", "kv", "faults"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    environment = {
        "DOTLLM_DISK_BYTES": "0", "DOTLLM_STORE": f"file://{FOLDER.resolve()}/store", "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
        **faults.environment(FOLDER.resolve() / "faults", FAULTS),
    }  # fmt: skip
    more = os.environ.get("FLAGS", "--dtype float32").split()

    def start(name: str, flags: tuple[str, ...] = KINDS[kind], **variables: str) -> Server:
        flags = ("--max-model-len", "512", "--block-size", "32", *more, *flags)
        return Server(made, FOLDER / f"{name}.log", name="fleet", flags=flags, environment={**environment, **variables})

    with ExitStack() as servers:
        if kind == "prefill and decode":
            first = servers.enter_context(start("prefill", connector("kv_producer"), CUDA_VISIBLE_DEVICES="1"))
            first.wait()
            for number in range(REQUESTS):
                ask(first, number, max_tokens=1)
            all_stored(first)
        server = servers.enter_context(start(kind))
        server.wait()
        for number in range(len(PICKED)):
            ask(server, number)
        if kind != "prefill and decode":
            all_stored(server)
        found = {"first": ask_all(server), "again": ask_all(server)}
        if kind == "pause":
            found |= beside_pauses(server)
        if kind == "sleep":
            found |= beside_sleep(server)
        compiled, cached = compiles(server)
        if kind == "killed rank":
            end_a_rank(server)
        if kind == "prefill and decode":
            compiled += compiles(first)[0]
        if kind == "restart":
            with interrupted(server):
                os.killpg(server.process.pid, signal.SIGKILL)
            with start("restarted") as second:
                second.wait()
                found["restarted"] = ask_all(second)
                again, cached = compiles(second)
                compiled += again
    return {"answers": found, "compiled": compiled, "from the store": cached}


def report(kind: str, found: dict[str, Any], of_one: list[Any]) -> bool:
    """Print the results of the fleet. Returns whether all is well."""
    answers = found["answers"]
    wrong = [one for asked in answers.values() for one in asked if one[0] != 200 or one[2] not in ("stop", "length")]
    same = {
        time: sum(list(a) == list(b) for a, b in zip(asked, of_one, strict=True)) for time, asked in answers.items()
    }
    print(f"{kind}: of {REQUESTS} answers the same as one's: {same}, wrong {len(wrong)} {wrong[:2] or ''}", end="; ")
    print(f"specifications compiled {found['compiled']}, from the store {found['from the store']}", flush=True)
    return not wrong and all(number == REQUESTS for number in same.values()) and found["compiled"] == len(PICKED)


def main(*kinds: str) -> int:
    made = Path(os.environ["MODEL"]) if "MODEL" in os.environ else model.make(FOLDER / "model", vocabulary_size=1000)
    good, one = True, FOLDER / "one.json"
    for kind in kinds or KINDS:
        try:
            found = run(kind, made)
        except (ServerDied, AssertionError, OSError) as error:
            print(f"{kind}: {type(error).__name__}: {error}", flush=True)
            good = False
            continue
        (FOLDER / f"{kind}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False))
        good &= report(kind, found, json.loads(one.read_text())["answers"]["first"])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
