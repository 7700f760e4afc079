"""Checks with mixed requests to two servers that a preview changes no answer and counts like ``dotllm check``.

    python -m benchmarks.preview_counts make REQUESTS.jsonl --requests 1000
    python -m benchmarks.preview_counts ask URL REQUESTS.jsonl PLAIN.jsonl      # of vllm serve
    python -m benchmarks.preview_counts ask URL REQUESTS.jsonl PREVIEW.jsonl    # of dotllm serve --dotllm-preview
    python -m benchmarks.preview_counts compare REQUESTS.jsonl PLAIN.jsonl PREVIEW.jsonl --tokenizer MODEL

Both servers have the same flags, among them a tool parser and ``--no-enable-prefix-caching``. Requests are sent one
after another, at temperature 0, so that both servers run the same batches. ``ask`` continues where an interrupted run
ended. The exit status of ``compare`` is 1 if an answer or a count differs from that of ``dotllm check --requests``.

The requests come from client libraries, this project's tests, BFCL (if its package is installed) and the fuzzer; the
last quarter are copies of these with another constraint, field or tool choice.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from dotllm.bench.quality import bfcl
from dotllm.bench.quality.asking import ARMS
from tests.client_bodies import BODIES
from tests.fuzz import makers
from tests.twins.answers import Answer, difference

CHAT, COMPLETION, RESPONSES, MESSAGES = PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
)  # fmt: skip
KINDS = {"chat": CHAT, "completion": COMPLETION, "response": RESPONSES, "message": MESSAGES}
TOKENS = 6
"""Most tokens of an answer."""
WORDS = ("a", "[0-9]{4}", "(a", r"(a)\1", "yes|no")
METRIC = re.compile(r'dotllm_preview_requests_total\{code="([^"]*)",outcome="([^"]*)"\} ([\d.e+]+)')
Request = tuple[str, dict[str, Any]]


def mixed(most: int, seed: int = 0) -> list[Request]:
    """``most`` different requests."""
    chance, found, seen = Random(seed), list[Request](), set[str]()

    def add(path: str, body: Any) -> None:
        if not isinstance(body, dict) or path not in PATHS or "background" in body or "previous_response_id" in body:
            return
        settled = _settled(path, body)
        if "stream" not in settled and chance.random() < 0.25:
            settled["stream"] = True
        try:
            text = json.dumps([path, settled]).encode("ascii").decode()
        except (TypeError, ValueError):
            return
        if text not in seen and "Infinity" not in text and "NaN" not in text and "\\ud800" not in text:
            seen.add(text)
            found.append((path, settled))

    for row in BODIES:
        add(row["path"], row["body"])
    for body in _of_bfcl():
        add(CHAT, body)
    while len(found) < most * 3 // 4:
        kind, body = makers.body(chance)
        add(KINDS[kind], body)
    kept = list(found)
    while len(found) < most:
        path, body = chance.choice(kept)
        add(path, _varied(body, chance))
    chance.shuffle(found)
    return found[:most]


def _settled(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """``body``, changed so that its answer is short and the same each time."""
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    short: dict[str, Any] = {limit: TOKENS, "temperature": 0, "model": "demo"}
    if "max_completion_tokens" in body:
        short["max_completion_tokens"] = TOKENS
    return body | short


def _of_bfcl() -> Iterator[dict[str, Any]]:
    """Cases as chats, in all arms."""
    with contextlib.suppress(bfcl.Missing):
        for name in ("simple_python", "live_simple", "multiple"):
            for number, case in enumerate(islice(bfcl.cases(name), 50)):
                arm = [*ARMS.values()][number % len(ARMS)]
                yield {"messages": arm.messages(case), **arm.constrain(case)}


def _varied(body: dict[str, Any], chance: Random) -> dict[str, Any]:
    """``body`` with a random change."""
    changes: list[dict[str, Any]] = [
        {"stream": not body.get("stream")},
        {"tool_choice": chance.choice(["none", "auto", "required"])},
        {"structured_outputs": {chance.choice(["regex", "grammar"]): chance.choice(WORDS)}},
        {"response_format": {"type": chance.choice(["json_object", "text", "yaml"])}},
        {chance.choice(["guided_regex", "guided_json", "format", "seed", "user"]): chance.choice(WORDS)},
        {"vllm_xargs": {chance.choice(["dotllm_property_order", "mine"]): chance.choice(["any", "declared", "x"])}},
        {"parallel_tool_calls": False},
    ]
    strict = json.loads(json.dumps(body).replace('"strict": false', '"strict": true'))
    return {**chance.choice([body, strict]), **chance.choice(changes)}


def ask(url: str, requests: list[Request], file: Path) -> None:
    """Append the answers, and the counts of the server's preview, to ``file``."""
    before = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = sum("status" in line for line in before)
    with file.open("a") as out:
        for path, body in requests[done:]:
            answer = _asked(url + path, body)
            out.write(json.dumps(answer._asdict()) + "\n")
            out.flush()
        out.write(json.dumps({"counts": _counts(url, len(requests) - done)}) + "\n")


def _asked(url: str, body: Any) -> Answer:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            try:
                text = response.read()
            except http.client.IncompleteRead as cut:  # vLLM has failed in a stream
                text = cut.partial
            return Answer(response.status, _headers(response), text.decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, _headers(error), error.read().decode())
    except TimeoutError:
        return Answer(0, {}, "no answer in time")


def _headers(response: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _counts(url: str, most: int) -> list[tuple[str, str, int]]:
    """The counts of a preview after it has checked everything; empty without a preview."""
    ends = time.monotonic() + 600  # (the process that checks has a low priority)
    while True:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
            text = response.read().decode()
        found = [(o, c, int(float(n))) for c, o, n in METRIC.findall(text)]
        is_preview = "HELP dotllm_preview_requests_total" in text
        if not is_preview or sum(count for *_, count in found) >= most or time.monotonic() > ends:
            return found
        time.sleep(1)


def compare(requests: list[Request], files: list[Path], expected: Counter[tuple[str, str]]) -> dict[str, Any]:
    """The differences between the answers of two files, and of the second one's counts from ``expected``."""
    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    plain, ours = ([Answer(**line) for line in one if "status" in line] for one in lines)
    different = []
    for number, (request, *pair) in enumerate(zip(requests, plain, ours, strict=True)):
        if said := difference(*pair, by_event=False):
            different.append({"number": number, "what": said, "request": request})
    counted: Counter[tuple[str, str]] = Counter()
    for line in lines[1]:
        for outcome, code, count in line.get("counts", ()):
            counted[outcome, code] += count
    return {
        "requests": len(requests),
        "statuses": dict(sorted(Counter(answer.status for answer in plain).items())),
        "streams": sum(answer.is_stream for answer in plain),
        "different": different,
        "counts": {f"{outcome} {code}".strip(): count for (outcome, code), count in sorted(expected.items())},
        "counted otherwise": {
            f"{outcome} {code}".strip(): (counted[outcome, code], expected[outcome, code])
            for outcome, code in sorted(counted.keys() | expected.keys())
            if counted[outcome, code] != expected[outcome, code]
        },
    }


def counts_of_the_command(file: Path, tokenizer: str) -> Counter[tuple[str, str]]:
    """The counts of ``dotllm check --requests``."""
    from dotllm.cli import check

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        check.main(["--requests", str(file), "--json", "--tokenizer", tokenizer])
    said = [json.loads(line) for line in out.getvalue().splitlines() if line.startswith("{")]
    return Counter((one["outcome"], one["code"]) for one in said)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    make = what.add_parser("make")
    make.add_argument("file", type=Path)
    make.add_argument("--requests", type=int, default=1000)
    asks = what.add_parser("ask")
    asks.add_argument("url")
    asks.add_argument("file", type=Path)
    asks.add_argument("answers", type=Path)
    compares = what.add_parser("compare")
    compares.add_argument("file", type=Path)
    compares.add_argument("answers", type=Path, nargs=2)
    compares.add_argument("--tokenizer", required=True)
    asked = parser.parse_args()
    if asked.what == "make":
        lines = [json.dumps({"path": path, "body": body}) for path, body in mixed(asked.requests)]
        asked.file.write_text("\n".join(lines) + "\n")
        return 0
    read = [json.loads(line) for line in asked.file.read_text().splitlines()]
    requests = [(line["path"], line["body"]) for line in read]
    if asked.what == "ask":
        ask(asked.url, requests, asked.answers)
        return 0
    found = compare(requests, asked.answers, counts_of_the_command(asked.file, asked.tokenizer))
    print(json.dumps(found, indent=1))
    return int(bool(found["different"] or found["counted otherwise"]))


if __name__ == "__main__":
    sys.exit(main())
