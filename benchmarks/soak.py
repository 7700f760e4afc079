"""Mixed and hostile traffic to a server for minutes: memory, latency and failures.

    python -m benchmarks.soak [--minutes 10] [--clients 40] [--interval 15] [--json FILE] [--svg FILE]
    python -m benchmarks.soak --model FOLDER --flags "--max-num-seqs 256"     # your own server, on a GPU for example
    python -m benchmarks.soak --url http://127.0.0.1:8000 --pid 4711          # a running server

Each client sends one request after another: known constraints, whose answers `re` and `jsonschema` judge; new schemas;
requests that `tests.fuzz` makes (spoilt schemas, patterns, grammars, tags, bodies); and requests that the client
abandons. Every ``--interval`` seconds, a line gives the resident memory of all the server's processes, answers per
second, the median and the 99th percentile of the seconds per answer, and the number of answers by status. The exit
status is 1 if an answer is wrong, a status is 5xx (except 503, and requests that vLLM's own backends also answer with
5xx), the server has died, or memory grows by more than a tenth between the second third and the last.

Without ``--model``, the demo's model is served. A running server needs a tool call parser, as in `FLAGS`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

from dotllm.demo import model
from dotllm.demo.server import Server
from tests.fuzz import makers, requests
from tests.serve.raw import complete
from tests.serve.specifications import CASES

FLAGS = ("--max-model-len", "2048", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
MEMORY = {"DOTLLM_CACHE_MEMORY_BYTES": str(64 << 20), "DOTLLM_DISK_BYTES": str(16 << 20)}
"""Small, so that both caches fill up and evict within minutes."""
GROWTH = 1.1
PANELS = {
    "rss_mib": "resident memory of all processes, MiB",
    "p50": "median seconds of an answer",
    "p99": "99th percentile of the seconds of an answer",
}


class Soak:
    """What the clients have seen since the last line."""

    def __init__(self, url: str, pid: int | None) -> None:
        """``pid``: the server's process; without it, memory is not measured."""
        self.url, self.pid = url, pid
        with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as response:
            self.model = json.loads(response.read())["data"][0]["id"]
        self.lock = threading.Lock()
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stop = threading.Event()
        requests.ask_vllm("completion", {"model": self.model})  # imports vLLM, which takes half a minute

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
                if not isinstance(error, OSError | HTTPException | ValueError):  # (a stream is not JSON)
                    self.wrong.append(repr(error))
            with self.lock:
                self.statuses[status] += 1
                if status == "200":
                    self.seconds.append(time.monotonic() - began)

    def ask(self, chance: random.Random) -> str:
        """Send one request and return its status."""
        pick = chance.random()
        if pick < 0.5:
            return self.judged(chance)
        if pick < 0.65:
            name = f"k{chance.randrange(10**9)}"
            schema = {"type": "object", "properties": {name: {"enum": [1, "a"]}}, "required": [name]}
            return self.send(structured_outputs={"json": schema})
        if pick < 0.95:
            kind, body = makers.body(chance)
            body |= {"max_output_tokens" if kind == "response" else "max_tokens": 8, "n": 1}
            return self.send(kind, **{key: value for key, value in body.items() if key not in ("model", "best_of")})
        return self.send(timeout=0.2, max_tokens=200, structured_outputs={"regex": "[a-z]{300}"})

    def judged(self, chance: random.Random) -> str:
        case = chance.choice(CASES)
        answer = complete(self, self.model, max_tokens=300, **case.body)
        if answer.status == 200 and answer.body["choices"][0]["finish_reason"] == "stop":
            try:
                case.judge(answer.text)
            except Exception as error:
                self.wrong.append(f"{case.name}: {error}")
        return self.noted(answer.status, answer.body, "completion", case.body)

    def send(self, kind: str = "completion", **fields: Any) -> str:
        answer = complete(self, self.model, path=requests.PATHS[kind], **fields)
        return self.noted(answer.status, answer.body, kind, fields)

    def noted(self, status: int, body: Any, kind: str, fields: Any) -> str:
        if status < 500 or status == 503:
            return str(status)
        with self.lock:  # the judge uses a global variable
            if requests.ask_vllm(kind, {"model": self.model, **fields}).error is not None:
                return f"{status} of vLLM"
        print(f"{status}: {json.dumps(body)[:400]} for {json.dumps(fields)[:1000]}", flush=True)
        return str(status)

    def line(self, since: float) -> dict[str, Any]:
        """The figures since the last line."""
        with self.lock:
            seconds, statuses = sorted(self.seconds), self.statuses
            self.seconds, self.statuses = [], Counter()
        processes = resident(self.pid) if self.pid else {}
        return {
            "rss_mib": sum(processes.values()) if processes else None,
            "processes": processes,
            "a_second": round(sum(statuses.values()) / since, 1),
            "p50": round(statistics.median(seconds), 2) if seconds else None,
            "p99": round(seconds[int(0.99 * len(seconds))], 2) if seconds else None,
            "statuses": dict(sorted(statuses.items())),
            "wrong": len(self.wrong),
        }


def resident(root: int) -> dict[str, int]:
    """MiB of memory of a process and of each of its descendants."""
    children, found = defaultdict(list), {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            name, rest = (entry / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            children[int(rest.split()[1])].append(int(entry.name))
            pages = int((entry / "statm").read_text().split()[1])
            found[int(entry.name)] = f"{name} {entry.name}", pages * os.sysconf("SC_PAGE_SIZE") >> 20
    tree = [root]
    for process in tree:
        tree += children[process]
    return dict(found[process] for process in tree if process in found)


def run(soak: Soak, minutes: float, clients: int, interval: float) -> list[dict[str, Any]]:
    """Run the clients and return the lines."""
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


def picture(lines: list[dict[str, Any]]) -> str:
    """An SVG: memory and the two latencies by the minute, each scaled to its highest value."""
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 400" font-family="sans-serif" font-size="12">',
        '<rect width="640" height="400" fill="white"/>',
    ]
    end = lines[-1]["minute"]
    for number, (key, title) in enumerate(PANELS.items()):
        bottom = 120 * (number + 1)
        points = [(line["minute"], line[key]) for line in lines if line[key] is not None]
        top = max((value for _, value in points), default=1)
        path = " ".join(f"{60 + 560 * minute / end:.1f},{bottom - 85 * value / top:.1f}" for minute, value in points)
        out += [
            f'<text x="60" y="{bottom - 92}">{title}</text><path d="M60 {bottom}H620" stroke="#d0d7de"/>',
            f'<text x="54" y="{bottom - 80}" text-anchor="end">{top:g}</text>',
            f'<text x="54" y="{bottom}" text-anchor="end">0</text>',
            f'<polyline points="{path}" fill="none" stroke="#0969da" stroke-width="1.5"/>',
        ]
    return "\n".join([*out, f'<text x="620" y="380" text-anchor="end">{end:g} minutes</text>', "</svg>", ""])


@contextlib.contextmanager
def serving(options: argparse.Namespace) -> Iterator[tuple[str, int | None, Callable[[], str]]]:
    """The URL of a server, its process, and how to read the end of its log."""
    if options.url:
        yield options.url.rstrip("/"), options.pid, lambda: ""
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or model.make(Path(folder) / "model")
        flags = (*FLAGS, *shlex.split(options.flags))
        with Server(path, Path(folder) / "log", name="soak", flags=flags, environment=MEMORY) as server:
            server.wait()
            yield server.url, server.process.pid, lambda: server.log_tail(60)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--interval", type=float, default=15)
    parser.add_argument("--json", type=Path, help="write the lines and the summary here")
    parser.add_argument("--svg", type=Path, help="write memory and latencies by the minute here")
    parser.add_argument("--model", type=Path, help="serve this model")
    parser.add_argument("--flags", default="", help="more flags of `dotllm serve`")
    parser.add_argument("--url", help="of a server that runs")
    parser.add_argument("--pid", type=int, help="of the server's process, for its memory")
    options = parser.parse_args()
    with serving(options) as (url, pid, log_tail):
        soak = Soak(url, pid)
        lines = run(soak, options.minutes, options.clients, options.interval)
        alive = False
        with contextlib.suppress(OSError):
            alive = complete(soak, soak.model).status == 200
        tail = "" if alive else log_tail()
    third = max(1, len(lines) // 3)
    parts = lines[third : 2 * third] or lines, lines[-third:]
    before, after = (statistics.fmean(line["rss_mib"] or 0 for line in part) for part in parts)
    statuses = sum((Counter(line["statuses"]) for line in lines), Counter())
    bad = sum(count for status, count in statuses.items() if status.isdigit() and status >= "500" and status != "503")
    summary = {"statuses": statuses, "wrong": soak.wrong[:5], "alive": alive, "rss_mib": [round(before), round(after)]}
    print(json.dumps(summary), tail, flush=True)
    if options.json:
        options.json.write_text(json.dumps({"lines": lines, **summary}, indent=1))
    if options.svg:
        options.svg.write_text(picture(lines))
    sys.exit(bool(soak.wrong or bad or not alive or after > GROWTH * before))


if __name__ == "__main__":
    main()
