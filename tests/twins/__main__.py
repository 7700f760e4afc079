"""Send the same requests to plain vLLM and dotllm, and compare: ``make twin-tests`` (docs/testing.md).

    python -m tests.twins                        # everything
    python -m tests.twins generate offline       # some of `servers.KINDS`, "batch" and "offline"
    python -m tests.twins embed --most 5         # fewer variations

The run ends with status 1 if a difference is not listed in ``differences.json`` with its reason, or (in a run of
everything) if a listed difference no longer occurs. ``--write`` keeps the table in benchmarks/results/twins.json.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from dotllm.cli import vllm_metadata
from tests.serve import model_classes
from tests.twins import answers, cases, listed, processes, servers
from tests.twins.answers import Answer
from tests.twins.cases import Case

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "benchmarks" / "results" / "twins.json"
TRIES = 5
"""How often a request is sent if its answers differ. Timing decides which of a stream's tokens share an event,
and if several inputs of a pooling request are wrong, chance decides which the error names (vLLM's
`merge_async_iterators` iterates over a set). In the end, whole streams are compared."""
PATIENCE_S = 120
OURS = "dotllm_"
"""The prefix of our metrics' names."""


READ: list[Case] = [{"name": path, "path": path} for path in ("/openapi.json", "/metrics")]
"""Requests to every server besides those of its files."""


class Row(NamedTuple):
    """The result of one request."""

    case: str
    what: str
    """The difference; "" if there is none."""
    tries: int
    status: int = 0
    """Plain vLLM's status; 0 if there is none."""


class Client:
    """One of the two servers, and its answers."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.known = (
            url,
            dict[str, Any]({"folder": str(folder), "audio": base64.b64encode(sound(1.0)).decode()}),
        )
        self._http = httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0))

    def ask(self, case: Case) -> Answer:
        """The server's answer to ``case``."""
        try:
            response = self._http.request(*self._request(case), **self._content(case))
        except httpx.HTTPError as error:
            return Answer(0, {}, type(error).__name__)
        # (The server's own address is not a difference.)
        answer = Answer(response.status_code, dict(response.headers), response.text.replace(self.url, "<url>"))
        self.known[case["name"]] = answer.body
        return answer

    def _request(self, case: Case) -> tuple[str, str]:
        return method(case), self.url + cases.filled(case["path"], self.known)

    def _content(self, case: Case) -> dict[str, Any]:
        headers = dict(case.get("headers", {}))
        if "form" in case:
            parts = {} if "audio" not in case else {"file": ("sound.wav", _file(case["audio"]))}
            return {"data": case["form"], "files": parts, "headers": headers}
        if "body" not in case and "text" not in case:
            return {"headers": headers}
        text = case["text"] if "text" in case else json.dumps(cases.filled(case["body"], self.known))
        headers.setdefault("content-type", case.get("type", "application/json"))
        return {"content": text.encode("latin-1" if "\xff" in text else "utf-8", "replace"), "headers": headers}


def method(case: Case) -> str:
    """The HTTP method of a request."""
    return str(case.get("method", "POST" if {"body", "text", "form"} & {*case} else "GET"))


def _file(audio: Any) -> bytes:
    return b"no audio" if audio == "text" else sound(audio)


def sound(seconds: float) -> bytes:
    """A WAV file: one tone."""
    import io
    import math
    import wave

    rate, buffer = 16_000, io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        tones = (int(8000 * math.sin(2 * math.pi * 440 * at / rate)) for at in range(int(seconds * rate)))
        file.writeframes(b"".join(tone.to_bytes(2, "little", signed=True) for tone in tones))
    return buffer.getvalue()


def compare(pair: tuple[Client, Client], case: Case) -> Row:
    """Ask both servers; if they differ, repeat (if allowed) until one of our answers equals one of plain vLLM's."""
    asked = list[tuple[Answer, ...]]()
    with ThreadPoolExecutor(2) as pool:
        while not asked or (case.get("varied", True) and len(asked) < TRIES and least(asked, by_event=True)):
            asked.append(tuple(pool.map(lambda client: client.ask(case), pair)))
    what = least(asked, by_event=True) and least(asked, by_event=False)
    return Row(case["name"], what, len(asked), asked[0][0].status)


def least(asked: list[tuple[Answer, ...]], *, by_event: bool) -> str:
    """A difference that remains between every answer of plain vLLM's and every answer of ours; "" if two match."""
    plain, ours = zip(*asked, strict=True)
    differences = (answers.difference(one, other, by_event=by_event) for one in plain for other in ours)
    return min(differences, key=bool)


def failing(operations: list[str], rows: list[Row]) -> list[str]:
    """The operations whose requests all fail: their twins say nothing about successful answers."""
    places = [operation.partition("?")[0] for operation in operations]
    succeeded = {place for place, row in zip(places, rows, strict=True) if row.status and row.status < 400}
    return sorted({*places} - succeeded)


def of_server(name: str, folder: Path, most: int) -> tuple[list[Row], dict[str, Any]]:
    """Send all requests to a kind of server: those of its files, variations, generated requests; then its metrics."""
    kind = servers.KINDS[name]
    if name == "LoRA" and not (folder / "adapters").exists():
        model_classes.adapters(folder / "adapters")
    with servers.twins(name, folder) as pair:
        clients = Client(pair[0].url, folder), Client(pair[1].url, folder)
        descriptions = [client.ask({"name": "openapi", "path": "/openapi.json"}) for client in clients]
        rows = [Row("openapi.json", answers.difference(*descriptions), 1)]
        openapi = descriptions[0].body
        written = [case for file in kind.cases for case in cases.of_file(file)]
        rows += [Row(f"{path}", "not asked", 1) for path in unasked(openapi)]
        random = [] if name == "audio" else [*cases.varied(openapi, written, most)]
        (folder / f"{name}-openapi.json").write_text(json.dumps(openapi))
        generated = processes.generated(folder / f"{name}-openapi.json", paths_varied(written), max(1, most // 4))
        counts: dict[str, Any] = {"written": len(written), "varied": len(random), "generated": len(generated)}
        asked = [*written, *random, *generated]
        for number, case in enumerate(asked):
            rows.append(compare(clients, case))
            if rows[-1].what:
                print(f"  {name}: {rows[-1].case}: {rows[-1].what[:1000]}", flush=True)
            if number % 200 == 199:
                print(f"{name}: {number + 1} requests", flush=True)
        counts["never succeeded"] = failing([method(case) + " " + case["path"] for case in asked], rows[-len(asked) :])
        names = [answers.metric_names(client.ask({"name": "metrics", "path": "/metrics"}).text) for client in clients]
        ours = {metric: about for metric, about in names[1].items() if not metric.startswith(OURS)}
        counts["metrics of ours"] = len(names[1]) - len(ours)
        rows.append(Row("/metrics", answers.between(names[0], ours, "names"), 1))
    return rows, counts


def paths_varied(written: list[Case]) -> list[str]:
    """The paths whose requests may be varied, because they do not change the server."""
    return sorted({case["path"] for case in written if "body" in case and case.get("varied", True)})


def unasked(openapi: dict[str, Any]) -> list[str]:
    """The operations that the server describes but that no request, to any kind of server, covers."""
    files = {file for kind in servers.KINDS.values() for file in kind.cases}
    written = [case for file in sorted(files) for case in cases.of_file(file)]
    asked = {(re.sub(r"\$\{.*?\}", "x", case["path"].split("?")[0]), method(case)) for case in [*written, *READ]}
    described = [(path, name.upper()) for path, methods in openapi["paths"].items() for name in methods]
    return [
        f"{name} {path}"
        for path, name in described
        if not any(other == name and re.fullmatch(re.sub(r"\{\w+\}", "[^/]*", path), place) for place, other in asked)
    ]


def written(before: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """The kept table, updated with the kinds of this run. (Other kinds and front ends keep their old rows.)"""
    return {**before, "vllm": vllm_metadata.vllm_version(), "kinds": before.get("kinds", {}) | table}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="of servers, or batch, or offline; all by default")
    parser.add_argument("--most", type=int, default=40, help="variations, and generated requests, of each path")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "twins")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    others = {"batch": processes.batch, "offline": processes.offline}
    table, unlisted, used = {}, 0, set[int]()
    for name in arguments.kinds or [*servers.KINDS, *others]:
        started = time.monotonic()
        found = others[name](folder) if name in others else of_server(name, folder, arguments.most)
        rows, counts = [Row(*row) for row in found[0]], found[1]
        verdict = listed.judge(name, rows)
        used |= verdict.used
        unlisted += len(verdict.unlisted)
        for row in verdict.unlisted:
            print(f"{name}: NOT LISTED: {row.case}: {row.what}", flush=True)
        table[name] = {
            **counts, "most": arguments.most, "same": sum(not row.what for row in rows), "of these asked again": sum(row.tries > 1 and not row.what for row in rows),
            "listed": verdict.by_reason, "not listed": len(verdict.unlisted), "seconds": round(time.monotonic() - started),
        }  # fmt: skip
        print(f"{name}: {json.dumps(table[name])}", flush=True)
    stale = [] if arguments.kinds else listed.stale(used)
    for entry in stale:
        print(f"listed, but it does not come: {entry}")
    if arguments.write:
        before = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        TABLE.write_text(json.dumps(written(before, table), indent=1) + "\n")
    return int(bool(unlisted or stale))


if __name__ == "__main__":
    sys.exit(main())
