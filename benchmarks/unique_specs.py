"""Ten thousand different specifications through one live server: memory, disk and throughput over time.

    python -m benchmarks.unique_specs [--number 10000] [--memory 256MiB] [--disk 64MiB] [--concurrency 16]

Prints a line per --every requests, and writes the lines to --out: requests/s, resident memory of the engine core,
bytes of the two caches according to /metrics and on disk. Exit status 1 if a bound was broken (the engine core may
grow by the bound of its cache and `OTHER_MEMORY` after the first specification), a request failed, or the last quarter
ran at less than 0.8 of the second quarter's rate.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dotllm.compilation.options import parse_bytes
from dotllm.demo import model as demo_model
from dotllm.demo.server import Server
from dotllm.system import user_cache_directory

NAME = "demo"
RESULTS = Path(__file__).parent / "results" / "unique_specs.json"
# Memory that an engine core needs besides the cache: arenas of threads, compiles in progress, vLLM's own bookkeeping.
OTHER_MEMORY = 96 << 20


def specification(number: int) -> dict[str, Any]:
    """Schemas, regexes and choices that share nothing but their shape."""
    if number % 4 == 1:
        return {"regex": f"{number}-[a-{'cdefghijklmnopqrstuvwxyz'[number % 24]}]{{1,{number % 13 + 1}}}"}
    if number % 4 == 2:
        return {"choice": [f"answer {number} {letter}" for letter in "abcdef"]}
    properties = {
        f"name{number}": {"type": "string", "maxLength": number % 40 + 1},
        "count": {"type": "integer", "minimum": 0, "maximum": number},
        "kind": {"enum": [f"{number}{letter}" for letter in "abcd"]},
    }
    return {"json": {"type": "object", "properties": properties, "required": list(properties)}}


def ask(server: Server, number: int) -> int:
    """Send one request and return its status."""
    body = {"model": NAME, "prompt": "x", "max_tokens": 12, "structured_outputs": specification(number)}
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def resident(server: Server) -> dict[str, int]:
    """Resident bytes of the server's processes, by the names that they gave themselves."""
    found: dict[str, int] = {}
    group = server.process.pid
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            session = int(status.with_name("stat").read_text().rsplit(")", 1)[1].split()[3])
        except (OSError, ValueError):
            continue
        if session == group and "VmRSS" in fields:
            name = fields["Name"].strip()
            found[name] = max(found.get(name, 0), int(fields["VmRSS"].split()[0]) * 1024)
    return found


def gauges(server: Server) -> dict[str, float]:
    """The gauges of our caches."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
        lines = [line for line in response.read().decode().splitlines() if line.startswith("dotllm_cache")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def run(server: Server, cache: Path, arguments: argparse.Namespace) -> tuple[list[dict[str, float]], list[str]]:
    """A row of figures for every ``--every`` requests, and which bounds were broken."""
    rows: list[dict[str, float]] = []
    broken: list[str] = []
    first = engine_memory(server)
    print(f"{'requests':>9} {'req/s':>7} {'engine RSS':>11} {'memory':>9} {'disk':>9} {'du':>9}  MiB")
    with ThreadPoolExecutor(arguments.concurrency) as pool:
        for start in range(0, arguments.number, arguments.every):
            began = time.monotonic()
            statuses = set(pool.map(lambda n: ask(server, n), range(start, start + arguments.every)))
            rate = arguments.every / (time.monotonic() - began)
            found = gauges(server)
            row = {
                "requests": start + arguments.every,
                "requests_per_s": round(rate, 1),
                "engine_rss_mib": engine_memory(server) / 2**20,
                "memory_cache_mib": found['dotllm_cache_bytes{level="memory"}'] / 2**20,
                "disk_cache_mib": found.get('dotllm_cache_bytes{level="disk"}', 0.0) / 2**20,
                "disk_used_mib": disk_used(cache / "index") / 2**20,
            }
            rows.append({name: round(value, 1) for name, value in row.items()})
            numbers = list(rows[-1].values())
            print(
                f"{numbers[0]:>9} {numbers[1]:>7} {numbers[2]:>11} " + " ".join(f"{n:>9}" for n in numbers[3:]),
                flush=True,
            )
            if statuses != {200}:
                broken.append(f"statuses {sorted(statuses)} at {start}")
            # The server measures it a few times a minute, so the cache may be over its bound for a moment.
            if row["memory_cache_mib"] * 2**20 > 1.25 * arguments.memory:
                broken.append(f"memory cache at {start}: {row['memory_cache_mib']:.1f} MiB")
            if row["disk_used_mib"] * 2**20 > arguments.disk + (1 << 20):
                broken.append(f"disk at {start}: {row['disk_used_mib']:.1f} MiB")
            if row["engine_rss_mib"] * 2**20 > first + arguments.memory + OTHER_MEMORY:
                broken.append(f"resident at {start}: {row['engine_rss_mib']:.1f} MiB, {first / 2**20:.1f} before")
    return rows, broken


def engine_memory(server: Server) -> int:
    """Resident bytes of the engine core."""
    return max(size for name, size in resident(server).items() if "Engine" in name)


def disk_used(directory: Path) -> int:
    """Bytes of the blocks that the files below ``directory`` take."""
    found = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # evicted meanwhile
            found += path.stat().st_blocks * 512 if path.is_file() else 0
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--memory", type=parse_bytes, default=256 << 20)
    parser.add_argument("--disk", type=parse_bytes, default=64 << 20)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = arguments.model or demo_model.make(Path(directory, "model"))
        cache = Path(directory, "cache")
        cache.mkdir()
        for name in ("kernels", "vocabulary"):  # only the cache of indexes starts empty
            Path(user_cache_directory(), name).mkdir(parents=True, exist_ok=True)
            (cache / name).symlink_to(user_cache_directory() / name)
        environment = {"DOTLLM_CACHE_MEMORY_BYTES": str(arguments.memory), "DOTLLM_DISK_BYTES": str(arguments.disk)}
        flags = ("--max-model-len", "512", "--dotllm-cache-dir", str(cache))
        with Server(model, Path(directory, "log"), name=NAME, flags=flags, environment=environment) as server:
            server.wait()
            ask(server, 0)
            rows, broken = run(server, cache, arguments)
    rates = [row["requests_per_s"] for row in rows]
    quarter = len(rates) // 4
    if quarter:
        second, last = statistics.median(rates[quarter : 2 * quarter]), statistics.median(rates[-quarter:])
        print(f"requests/s: second quarter {second:.1f}, last quarter {last:.1f}")
        if last < 0.8 * second:
            broken.append("the throughput decays")
    for line in broken:
        print(line, file=sys.stderr)
    about = {"memory_bound": arguments.memory, "disk_bound": arguments.disk, "concurrency": arguments.concurrency}
    arguments.out.write_text(json.dumps({"about": about, "broken": broken, "rows": rows}, indent=1) + "\n")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
