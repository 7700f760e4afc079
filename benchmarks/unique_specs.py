"""Ten thousand different specifications through one live server: memory, disk and throughput as they go by.

    python -m benchmarks.unique_specs [--number 10000] [--memory 256MiB] [--disk 64MiB] [--concurrency 16]

Prints a line per --every requests: requests/s, resident memory of the engine core, bytes of the two caches as /metrics
says and as the disk shows. Exit status 1 if a bound was broken, a request failed, or the last quarter ran at less than
0.8 of the second quarter's rate.
"""

from __future__ import annotations

import argparse
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
from dotllm.jit import user_cache_directory

NAME = "demo"


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
    """One request; its status."""
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
    """Resident bytes of the server's processes by the name they gave themselves."""
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
    """Our gauges."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
        lines = [line for line in response.read().decode().splitlines() if line.startswith("dotllm_cache")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--memory", type=parse_bytes, default=256 << 20)
    parser.add_argument("--disk", type=parse_bytes, default=64 << 20)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--model", type=Path)
    arguments = parser.parse_args()
    broken: list[str] = []
    rates: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        model = arguments.model or demo_model.make(Path(directory, "model"))
        cache = Path(directory, "cache")
        cache.mkdir()
        for name in ("kernels", "vocabulary"):  # only the cache of indexes is to be empty
            Path(user_cache_directory(), name).mkdir(parents=True, exist_ok=True)
            (cache / name).symlink_to(user_cache_directory() / name)
        environment = {"DOTLLM_MEMORY_BYTES": str(arguments.memory), "DOTLLM_DISK_BYTES": str(arguments.disk)}
        flags = ("--max-model-len", "512", "--dotllm-cache-dir", str(cache))
        with Server(model, Path(directory, "log"), name=NAME, flags=flags, environment=environment) as server:
            server.wait()
            ask(server, 0)
            print(f"{'requests':>9} {'req/s':>7} {'engine RSS':>11} {'memory':>9} {'disk':>9} {'du':>9}  MiB")
            with ThreadPoolExecutor(arguments.concurrency) as pool:
                for start in range(0, arguments.number, arguments.every):
                    began = time.monotonic()
                    statuses = list(pool.map(lambda n: ask(server, n), range(start, start + arguments.every)))
                    rates.append(arguments.every / (time.monotonic() - began))
                    if set(statuses) != {200}:
                        broken.append(f"statuses {sorted(set(statuses))} at {start}")
                    found = gauges(server)
                    memory = found['dotllm_cache_bytes{level="memory"}']
                    disk = found.get('dotllm_cache_bytes{level="disk"}', 0.0)
                    du = sum(path.stat().st_blocks * 512 for path in (cache / "index").rglob("*") if path.is_file())
                    rss = max(
                        size for name, size in resident(server).items() if "Engine" in name or "EngineCor" in name
                    )
                    numbers = (rss, memory, disk, du)
                    print(
                        f"{start + arguments.every:>9} {rates[-1]:>7.1f} "
                        + " ".join(
                            f"{value / 2**20:>{width}.1f}" for value, width in zip(numbers, (11, 9, 9, 9), strict=True)
                        ),
                        flush=True,
                    )
                    # Measured some times a minute, so memory may be over its bound for a moment.
                    if memory > 1.25 * arguments.memory or du > arguments.disk + (1 << 20):
                        broken.append(f"bound broken at {start}: memory {memory:.0f}, disk {du}")
    quarter = len(rates) // 4
    if quarter:
        second, last = statistics.median(rates[quarter : 2 * quarter]), statistics.median(rates[-quarter:])
        print(f"requests/s: second quarter {second:.1f}, last quarter {last:.1f}")
        if last < 0.8 * second:
            broken.append("the throughput decays")
    for line in broken:
        print(line, file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
