"""Requests that have taken down servers elsewhere (from the advisories and reports that the project collected), against
a live server of ours.

Each test names its advisory. After all tests the server must be healthy and its engine idle: abandoned work has really
stopped.
"""

from __future__ import annotations

import ast
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dotllm
from dotllm.system import user_cache_directory
from tests.serve.raw import Answer, complete, metrics, together, total
from tests.serve.zygote import Server

pytestmark = pytest.mark.serve

MODEL = "demo"
MEMORY, DISK = 64 << 20, 4 << 20


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("security")
    (directory / "cache").mkdir()
    for name in ("kernels", "vocabulary"):  # only the cache of indexes must be empty
        (user_cache_directory() / name).mkdir(parents=True, exist_ok=True)
        (directory / "cache" / name).symlink_to(user_cache_directory() / name)
    environment = {
        "DOTLLM_CACHE_DIR": str(directory / "cache"),
        "DOTLLM_CACHE_MEMORY_BYTES": str(MEMORY),
        "DOTLLM_DISK_BYTES": str(DISK),
        "DOTLLM_COMPILE_PROCESSES": "2",
        "DOTLLM_STORE_WRITE_INTERVAL": "0.2",
    }
    flags = ("--max-model-len", "2048", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with Server(demo_model, directory / "log", name=MODEL, flags=flags, environment=environment) as running:
        running.wait()
        complete(running, MODEL, structured_outputs={"regex": "[a-z]"})
        yield running
        assert running.healthy(), running.log_tail(60)
        deadline = time.monotonic() + 30
        while total(metrics(running), "dotllm_compiles_running") or total(
            metrics(running), "vllm:num_requests_running"
        ):
            assert time.monotonic() < deadline, "work that was given up still runs"
            time.sleep(0.5)
        assert complete(running, MODEL, structured_outputs={"regex": "[a-z]{3}"}).status == 200


def ask(server: Server, limit: float = 60.0, **fields: Any) -> Answer:
    """An answer, or a refusal with a message, within ``limit`` seconds; never a 500."""
    answer = complete(server, MODEL, timeout=limit, **fields)
    assert answer.status in (200, 400), answer
    assert answer.status == 200 or answer.message
    return answer


def schema(server: Server, value: Any, limit: float = 60.0) -> Answer:
    return ask(server, limit, structured_outputs={"json": value})


def regex(server: Server, pattern: str, limit: float = 60.0) -> Answer:
    return ask(server, limit, structured_outputs={"regex": pattern})


def grammar(server: Server, text: str, limit: float = 60.0) -> Answer:
    return ask(server, limit, structured_outputs={"grammar": text})


def test_unique_specifications_stay_under_the_bounds(server: Server) -> None:
    """CVE-2025-29770, CVE-2025-32381: unbounded caches, on disk and in memory. (10,000: see benchmarks.)"""

    def one(number: int) -> int:
        value = {"type": "object", "properties": {f"key{number}": {"enum": [f"{number}a", f"{number}b"]}}}
        return schema(server, {**value, "required": [f"key{number}"]}).status

    for start in range(0, 400, 16):
        assert set(together(16, lambda i, start=start: one(start + i))) == {200}
    cache = server.log.parent / "cache" / "index"
    files = [path.stat() for path in cache.rglob("*") if path.is_file()]
    assert len(files) > 20 and sum(stat.st_blocks * 512 for stat in files) <= DISK + (64 << 10)
    time.sleep(3)
    found = metrics(server)
    assert 0 < total(found, "dotllm_cache_bytes", level="memory") <= MEMORY
    assert total(found, "dotllm_cache_bytes", level="disk") <= DISK


def mutated(value: Any, generator: random.Random) -> Any:
    """``value`` with one mistake in it."""
    wrong: list[Any] = [None, -1, 1.5, "x", [], {}, True, "\0", 10**40, ["a", 1], {"$ref": "#/nowhere"}]
    if isinstance(value, dict) and value and generator.random() < 0.8:
        name = generator.choice(list(value))
        return {**value, name: mutated(value[name], generator)}
    if isinstance(value, list) and value and generator.random() < 0.8:
        place = generator.randrange(len(value))
        return [*value[:place], mutated(value[place], generator), *value[place + 1 :]]
    return generator.choice(wrong)


def test_invalid_schemas(server: Server) -> None:
    """CVE-2025-48942: an invalid JSON schema kills the server."""
    generator = random.Random(1)
    good = {
        "$defs": {"a": {"type": "string", "pattern": "^a", "minLength": 1}},
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"type": "array", "items": {"type": "integer", "minimum": 3}}},
        "required": ["x"],
        "additionalProperties": {"enum": [1, "b", None]},
        "minProperties": 1,
    }
    cases = [mutated(good, generator) for _ in range(120)]
    statuses = [
        status
        for start in range(0, 120, 12)
        for status in together(12, lambda i, s=start: _schema(server, cases[s + i]))
    ]
    assert {200, 400} == set(statuses), "some mutations are harmless, some are not"


def _schema(server: Server, value: Any) -> int:
    fields = {"json": value} if isinstance(value, (dict, str)) else {"json": json.dumps(value)}
    return ask(server, structured_outputs=fields).status


def test_invalid_regexes(server: Server) -> None:
    """CVE-2025-48943: an invalid regex kills the server."""
    for pattern in (
        "[",
        "(",
        ")",
        "a{2,1}",
        "*",
        "\\",
        "(?P<",
        "[z-a]",
        "a\0b",
        "(?<!",
        "\\p{Nope}",
        "(?z)",
        "[[:",
        "x{9999999999}",
    ):
        assert regex(server, pattern).status == 400, pattern
    assert regex(server, "^(|.*)$").status == 200
    generator = random.Random(2)
    for _ in range(60):
        regex(
            server, "".join(generator.choice("()[]{}|*+?.^$\\ab01-,:=!<>P") for _ in range(generator.randrange(1, 14)))
        )


def test_malformed_tools(server: Server) -> None:
    """CVE-2025-48944: a tool schema with a malformed ``pattern`` or ``type``.

    The schema of a strict tool is enforced, so a malformed one is refused. The model only sees those of other tools.
    """
    for parameters in (
        {"type": "x"},
        {"type": 1},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": 1}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "properties": ["a"]},
        {"type": "object", "required": "a"},
        {"type": ["object", 3]},
    ):
        for choice in ("required", {"type": "function", "function": {"name": "f"}}):
            for strict, status in ((True, 400), (False, 200), (None, 200)):
                answer = complete(
                    server,
                    MODEL,
                    path="/v1/chat/completions",
                    messages=[{"role": "user", "content": "?"}],
                    tools=[{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}],
                    tool_choice=choice,
                )
                assert answer.status == status, (parameters, strict, answer.body)


def test_what_the_wire_format_cannot_carry(server: Server) -> None:
    """Integers beyond 64 bits reach the engine all the same; half a surrogate pair does not. (Both were a 500 without a
    message.)"""
    assert schema(server, {"enum": [10**40, "b"]}).status == 200
    assert schema(server, {"type": "null", "description": "\ud800", "default": -(10**30)}).status == 200
    for fields in ({"regex": "a|\ud800"}, {"choice": ["\ud800"]}, {"grammar": 'start: "\ud800"'}):
        assert "surrogate" in ask(server, structured_outputs=fields).message
    assert ask(server, structured_outputs={"json": {}, "whitespace_pattern": "\ud800"}).status == 400


def test_grammars_that_never_end(server: Server) -> None:
    """CVE-2025-57809: infinite recursion in a grammar, empty cycles, circular references."""
    for text in (
        "root ::= a\na ::= a",
        "root ::= a\na ::= b\nb ::= a",
        'root ::= a "x"\na ::= a a | ""',
        'root ::= ("" | root)*',
        "start: a\na: a",
        'start: a\na: b "x"\nb: a "y"',
    ):
        grammar(server, text)
    assert (
        schema(server, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}).status
        == 400
    )
    endless = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"type": "object", "properties": {"n": {"$ref": "#/$defs/a"}}, "required": ["n"]}},
    }
    assert schema(server, endless).status == 400, "no finite document satisfies it"


def test_huge_enumerations(server: Server) -> None:
    """CVE-2025-58446: an enum of 10,000 values of 10 characters, referenced 8 times."""
    values = [f"{number:010d}" for number in range(10_000)]
    properties = {f"p{number}": {"$ref": "#/$defs/e"} for number in range(8)}
    value = {"type": "object", "properties": properties, "required": list(properties), "$defs": {"e": {"enum": values}}}
    assert schema(server, value).seconds < 30


@pytest.mark.parametrize("depth", [1_000, 30_000])
def test_deep_nesting(server: Server, depth: int) -> None:
    """CVE-2026-25048: nested parentheses overflow the stack. Tried in every language, and with chains of $ref."""
    assert regex(server, "(" * depth + "a" + ")" * depth).seconds < 30
    grammar(server, "root ::= " + "(" * depth + '"a"' + ")" * depth)
    grammar(server, "start: " + "(" * depth + '"a"' + ")" * depth)
    nested = '{"items": ' * depth + "{}" + "}" * depth
    ask(server, structured_outputs={"json": nested})
    links = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(depth)}
    schema(server, {"$ref": "#/$defs/d0", "$defs": {**links, f"d{depth}": {"type": "integer"}}})
    ask(server, structured_outputs={"json": '{"enum": [' + "[" * depth + "]" * depth + "]}"})


def test_exponential_regexes(server: Server) -> None:
    """CVE-2026-55574: state blow-up. An answer or a named budget comes in time, and the work stops."""
    for pattern in (
        "(a|b)*a(a|b){20}",
        "(a|b|ab)*c",
        "(.*a){12}.{30}",
        "((a{0,99}){0,99}){0,99}",
        "(?:(?=.*a)(?=.*b).{8})+",
        "(a+)+b",
    ):
        assert regex(server, pattern, 40).seconds < 30, pattern
    deadline = time.monotonic() + 15
    while total(metrics(server), "dotllm_compiles_running"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_compile_error_beside_others(server: Server) -> None:
    """vLLM #43920: an error after the backend was chosen kills the engine."""
    answers = together(
        24, lambda i: complete(server, MODEL, structured_outputs={"regex": f"[a-z]{{{i + 1}}}" if i % 3 else f"({i}"})
    )
    assert [one.status for one in answers] == [200 if i % 3 else 400 for i in range(24)]


def test_long_inputs_are_linear(server: Server) -> None:
    """vLLM #55473: parsers that are quadratic in the length of their input (520 KB took 11.6 s)."""
    assert regex(server, "a" * 520_000).seconds < 30
    assert grammar(server, "start: " + '"a" ' * 100_000).seconds < 30
    assert schema(server, {"type": "string", "description": "x" * 520_000}).seconds < 30
    assert ask(server, structured_outputs={"choice": [f"choice {n}" for n in range(40_000)]}).seconds < 30


def test_quantifiers_and_nul(server: Server) -> None:
    """llama.cpp #26600, #25283, #25284 (crashes on bad quantifiers and nesting), xgrammar (NUL)."""
    for text in (
        'root ::= "a"{',
        'root ::= "a"{2,1}',
        'root ::= "a"{99999999999}',
        "root ::= *",
        'root ::= ("a"',
        "root ::= [",
        "",
    ):
        assert grammar(server, text).status == 400, text
    assert regex(server, "a\0b").status == 400
    schema(server, {"type": "string", "pattern": "a\0b"})
    schema(server, {"type": "object", "properties": {"a\0b": {"type": "integer"}}, "required": ["a\0b"]})


def test_nothing_is_ever_unpickled() -> None:
    """CVE-2026-7304, CVE-2025-69872: no pickle in a request or a cache file. None of our modules can load one."""
    loaders = ("pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib")
    for path in Path(dotllm.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(word in text for word in loaders) else ():
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in loaders, path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path
