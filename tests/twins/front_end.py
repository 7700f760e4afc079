"""Twins of the front end alone, without a server: plain vLLM's recorded answers, and ours to the same requests.

    python -m tests.twins.front_end          # records plain vLLM's answers (a minute) in recorded-RELEASE.jsonl

The engine core is played (`tests.vllm_plugin.played_server`) and says the same to both. `make twin-tests` records
again and compares with the kept record, so that the record always matches the installed vLLM.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dotllm.cli import vllm_metadata
from dotllm.demo import tokenizer
from tests.twins import answers, cases, processes, servers
from tests.twins.answers import Answer
from tests.twins.cases import Case
from tests.vllm_plugin import played_server

FOLDER = Path(__file__).parent
MOST = 6
"""Variations per path."""
NOT_PLAYED = {"logprobs", "top_logprobs", "prompt_logprobs", "use_beam_search", "label_token_ids", "questions"}
"""Fields that the played engine does not support: it has no probabilities."""


def record() -> Path:
    """The file with the answers of the installed release."""
    release = ".".join((vllm_metadata.vllm_version() or "0.0").split(".")[:2])
    return FOLDER / f"recorded-{release}.jsonl"


def requests(openapi: dict[str, Any]) -> list[Case]:
    """The requests to a generating model, except those that need a real engine, and variations of them."""
    written = [case for file in ("all", "tokens", "generate") for case in cases.of_file(file)]
    found = [*written, *cases.varied(openapi, written, MOST)]
    return [case for case in found if is_played(case)]


def is_played(case: Case) -> bool:
    """Whether the played engine core supports the request."""
    if "text" in case:
        return True
    if "body" not in case:
        return "/is_" not in case["path"] and "${" not in case["path"]
    body, text = case["body"], json.dumps(case.get("body"))
    if not isinstance(body, dict) or NOT_PLAYED & {*body} or "${" in text or not case.get("varied", True):
        return False
    return not (body.get("stream") and isinstance(body.get("prompt"), list))  # (their order depends on chance)


def ask(server: Any, case: Case) -> Any:
    """What the client sees, settled."""
    method = case.get("method") or ("POST" if {"body", "text"} & {*case} else "GET")
    text = case["text"] if "text" in case else json.dumps(case["body"]) if "body" in case else ""
    text = text.replace(f'"{servers.NAME}"', f'"{played_server.NAME}"')
    headers = {"content-type": case.get("type", "application/json"), **case.get("headers", {})}
    found = server.answer(method, case["path"], text.encode("utf-8", "surrogatepass"), headers)
    headers = {name: value for name, value in found.headers.items() if name not in answers.UNTOLD}
    answer = Answer(
        found.status_code, headers, found.text.replace(server.core.vllm_config.model_config.model, "<model>")
    )
    return {"status": answer.status, "headers": answers.settled(headers), "body": answers.settled(answer.body)}


def difference(plain: dict[str, Any], ours: dict[str, Any]) -> str:
    """As `answers.difference`, for two settled answers."""
    if plain["status"] != ours["status"]:
        return f"status: {plain['status']} | {ours['status']} {json.dumps(ours['body'])[:300]}"
    return answers.between(plain["headers"], ours["headers"], "headers") or answers.between(
        plain["body"], ours["body"], "body"
    )


def corpus() -> str:
    """The SHA-256 of what the model's tokenizer is trained on: patch releases of Python have different help texts, and
    then other tokens."""
    return hashlib.sha256("\n".join(tokenizer.corpus()).encode()).hexdigest()


def recorded() -> tuple[str, list[list[Any]]]:
    """The `corpus` of the record; and its requests, each with plain vLLM's answer."""
    first, *rows = map(json.loads, record().read_text(encoding="utf-8").splitlines())
    return first["corpus"], rows


def fresh(folder: Path) -> list[list[Any]]:
    """The same from the installed vLLM, in a process without our hooks."""
    model = servers.made("generate", folder / "models")
    plain, _ = processes.environments()
    command = [sys.executable, "-m", "tests.twins.front_end_script", str(model)]
    for name in ("VLLM_SERVER_DEV_MODE", "VLLM_ENABLE_COHERE_API"):
        plain.pop(name)  # not set in tests
    ran = subprocess.run(command, env=plain, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: list[list[Any]] = json.loads(ran.stdout.rpartition("RESULT ")[2])
    return found


def main() -> None:
    """Record plain vLLM's answers."""
    rows = fresh(Path(".cache/twins").resolve())
    record().write_text("".join(json.dumps(row) + "\n" for row in ({"corpus": corpus()}, *rows)))
    print(f"{len(rows)} requests: {record()}")


if __name__ == "__main__":
    main()
