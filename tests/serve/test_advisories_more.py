"""Two more advisories that the project collected, on a live server that needs its own flags (the others are in
test_security): drafts of speculative decoding that the grammar does not allow, and foreign files in the cache.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dotllm.system import user_cache_directory
from tests.serve.raw import complete, metrics, together, total, until
from tests.serve.zygote import Server

pytestmark = pytest.mark.serve

MODEL = "demo"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("advisories") / "cache"
    directory.mkdir()
    for name in ("kernels", "vocabulary"):  # only the cache of indexes must be empty
        (user_cache_directory() / name).mkdir(parents=True, exist_ok=True)
        (directory / name).symlink_to(user_cache_directory() / name)
    return directory


@pytest.fixture(scope="module")
def server(demo_model: Path, cache: Path) -> Iterator[Server]:
    speculation = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
    flags = ("--max-model-len", "2048", "--speculative-config", json.dumps(speculation))
    environment = {
        "DOTLLM_CACHE_DIR": str(cache),
        "DOTLLM_CACHE_MEMORY_BYTES": "1MiB",  # so small that an index is soon only on disk
        "DOTLLM_STORE_WRITE_INTERVAL": "0.1",
    }
    with Server(demo_model, cache.parent / "log", name=MODEL, flags=flags, environment=environment) as running:
        running.wait()
        yield running
        assert running.healthy(), running.log_tail(60)


def test_drafts_that_the_grammar_does_not_allow(server: Server) -> None:
    """GHSA-8wr5-jm2h-8r4f: an invalid recovered token is put back in. The prompt repeats text after digits that only
    an engine that ignores the grammar would accept. None of it may get into an answer, or end one early.
    """
    before = metrics(server)
    prompt = " ".join(f"{digit}x{digit}y" for digit in "0123456789") * 12

    def one(number: int) -> str:
        answer = complete(
            server,
            MODEL,
            prompt=prompt,
            max_tokens=200,
            structured_outputs={"regex": f"([0-9];){{{20 + number}}}"},
        )
        assert answer.status == 200, answer.body
        assert answer.body["choices"][0]["finish_reason"] == "stop"
        return answer.text

    for number, text in enumerate(together(12, one)):
        assert re.fullmatch(f"([0-9];){{{20 + number}}}", text), text
    after = metrics(server)
    drafted, accepted = (
        total(after, name) - total(before, name)
        for name in ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
    )
    assert drafted > accepted, "some drafts were refused, or nothing has been shown"


class Bomb:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self._mark,)  # type: ignore[return-value]


def test_pickles_in_the_cache_directory(server: Server, cache: Path, tmp_path: Path) -> None:
    """CVE-2025-69872: anyone who can write to the cache directory can run code. Here a foreign entry is removed and
    made again."""
    schema = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"]}
    schema["additionalProperties"] = False

    def ask() -> None:
        answer = complete(
            server, MODEL, max_tokens=64, structured_outputs={"json": schema, "disable_any_whitespace": True}
        )
        assert answer.status == 200 and json.loads(answer.text)["a"] in ("b", "c")

    def entries() -> list[Path]:
        return [path for path in (cache / "index" / "entries").rglob("*") if path.is_file()]

    ask()
    until(lambda: bool(entries()))
    mark = tmp_path / "mark"
    assert pickle.loads(pickle.dumps(Bomb(mark))) is None and mark.exists(), "the bomb works"
    mark.unlink()
    before = total(metrics(server), "dotllm_cache_entries_ignored_total", level="disk")
    rounds = iter(range(10_000))

    def found_out() -> bool:
        """Other requests push the index out of memory; meanwhile every entry on disk is a bomb."""
        start = 40 * next(rounds)
        together(8, lambda i: complete(server, MODEL, structured_outputs={"regex": f"{start + i}[a-z]{{3}}"}))
        for path in entries():
            path.write_bytes(pickle.dumps(Bomb(mark)))
        ask()
        return total(metrics(server), "dotllm_cache_entries_ignored_total", level="disk") > before

    until(found_out)
    assert not mark.exists()
    ask()
