"""Mixed and hostile traffic on a server on the CPU, for minutes: memory, latency, and what went wrong.

    python -m benchmarks.soak [--minutes 10] [--clients 40] [--interval 15] [--json FILE]

Each client sends one request after another: known constraints, whose answers are judged by `re` and `jsonschema`; new
schemas; requests as `tests.fuzz` makes them (spoilt schemas, patterns, grammars, tags, bodies); and requests that are
given up. A line every ``--interval`` seconds has the resident memory of all the server's processes, answers a second,
the median and the 99th percentile of the seconds an answer took, and how many were of which status. The exit status is
1 if an answer is wrong, a status is 5xx, or memory grows by more than a tenth between the first third and the last.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dotllm.demo import model
from dotllm.demo.server import Server
from tests.fuzz import makers
from tests.serve.raw import complete
from tests.serve.specifications import CASES

MODEL = "soak"
FLAGS = ("--max-model-len", "2048", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
GROWTH = 1.1


class Soak:
    """What the clients have seen since the last line."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lock = threading.Lock()
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stop = threading.Event()

    def client(self, number: int) -> None:
        chance = random.Random(number)
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                status = self.ask(chance)
            except TimeoutError:
                status = "given up"
            except Exception as error:
                status = type(error).__name__
            with self.lock:
                self.statuses[status] += 1
                if status == "200":
                    self.seconds.append(time.monotonic() - began)

    def ask(self, chance: random.Random) -> str:
        """One request; its status."""
        pick = chance.random()
        if pick < 0.5:
            return self.judged(chance)
        if pick < 0.65:
            name = f"k{chance.randrange(10**9)}"
            schema = {"type": "object", "properties": {name: {"enum": [1, "a"]}}, "required": [name]}
            return self.send(structured_outputs={"json": schema})
        if pick < 0.95:
            body = {**makers.body(chance), "path": "/v1/chat/completions", "max_tokens": 8, "n": 1}
            return self.send(**{key: value for key, value in body.items() if key not in ("model", "best_of")})
        return self.send(timeout=0.2, max_tokens=200, structured_outputs={"regex": "[a-z]{300}"})

    def judged(self, chance: random.Random) -> str:
        case = chance.choice(CASES)
        answer = complete(self.server, MODEL, max_tokens=300, **case.body)
        if answer.status == 200 and answer.body["choices"][0]["finish_reason"] == "stop":
            try:
                case.judge(answer.text)
            except Exception as error:
                self.wrong.append(f"{case.name}: {error}")
        return self.noted(answer.status, answer.body)

    def send(self, **fields: Any) -> str:
        answer = complete(self.server, MODEL, **fields)
        return self.noted(answer.status, answer.body, fields)

    def noted(self, status: int, body: Any, fields: Any = None) -> str:
        if status >= 500 and status != 503:
            print(f"{status}: {json.dumps(body)[:400]} for {json.dumps(fields)[:1000]}", flush=True)
        return str(status)

    def line(self, since: float) -> dict[str, Any]:
        """What has happened since the last one."""
        with self.lock:
            seconds, statuses = sorted(self.seconds), self.statuses
            self.seconds, self.statuses = [], Counter()
        return {
            "rss_mib": resident(self.server.process.pid) >> 20,
            "a_second": round(sum(statuses.values()) / since, 1),
            "p50": round(statistics.median(seconds), 2) if seconds else None,
            "p99": round(seconds[int(0.99 * len(seconds))], 2) if seconds else None,
            "statuses": dict(sorted(statuses.items())),
            "wrong": len(self.wrong),
        }


def resident(group: int) -> int:
    """Bytes of memory of all processes of a group."""
    pages = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                pages += int((entry / "statm").read_text().split()[1])
        except (OSError, ProcessLookupError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(soak: Soak, minutes: float, clients: int, interval: float) -> list[dict[str, Any]]:
    """The lines."""
    threads = [threading.Thread(target=soak.client, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    lines = []
    began = last = time.monotonic()
    while time.monotonic() - began < 60 * minutes:
        time.sleep(interval)
        now = time.monotonic()
        lines.append({"minute": round((now - began) / 60, 2), **soak.line(now - last)})
        last = now
        print(json.dumps(lines[-1]), flush=True)
    soak.stop.set()
    for thread in threads:
        thread.join(30)
    return lines


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--interval", type=float, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"DOTLLM_CACHE_MEMORY_BYTES": str(64 << 20), "DOTLLM_DISK_BYTES": str(16 << 20)}
        path = model.make(Path(folder) / "model")
        with Server(path, Path(folder) / "log", name=MODEL, flags=FLAGS, environment=environment) as server:
            server.wait()
            soak = Soak(server)
            lines = run(soak, options.minutes, options.clients, options.interval)
            alive = server.healthy()
            tail = "" if alive else server.log_tail(60)
    third = max(1, len(lines) // 3)
    parts = lines[third : 2 * third] or lines, lines[-third:]
    before, after = (statistics.fmean(line["rss_mib"] for line in part) for part in parts)
    statuses = sum((Counter(line["statuses"]) for line in lines), Counter())
    bad = sum(count for status, count in statuses.items() if status.startswith("5") and status != "503")
    summary = {"statuses": statuses, "wrong": soak.wrong[:5], "alive": alive, "rss_mib": [round(before), round(after)]}
    print(json.dumps(summary), tail, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"lines": lines, **summary}, indent=1))
    sys.exit(bool(soak.wrong or bad or not alive or after > GROWTH * before))


if __name__ == "__main__":
    main()
