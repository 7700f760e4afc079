"""The caches with the real engine: a loaded index allows what the compiled one allows, warm masks included."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine import layout
from dotllm.compilation import CompilationManager, CompilationOptions, Specification, process
from dotllm.compilation.ahead import compile_ahead
from dotllm.compilation.compiler import ENGINE
from dotllm.compilation.errors import CompileMemory
from dotllm.compilation.inputs import Input
from dotllm.compilation.process import ProcessCompiler
from dotllm.errors import InvalidSpecError
from dotllm.index import advance_guides, fill_masks
from tests.cases import EVERY, few, sample

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["one", "two", "three"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SPECIFICATIONS = [
    Specification.from_value("json_schema", SCHEMA),
    Specification.create("json_object", ""),
    Specification.create("regex", r"[A-Z][a-z]{1,9}( \d{3}-\d{4})?"),
    Specification.create("choice", '["yes", "no", "yesterday"]'),
    Specification.create("grammar", 'start: "a" start "b" | "c"'),
]
DISK = 4 << 20


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    words = [b'{"', b'":', b'": "', b'", "', b"name", b"age", b"kind", b"yes", b"on", b"12", b"aa"]
    return Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), *words], eos_token_ids=300, size=301)


def manager_on(vocabulary: Vocabulary, directory: Path, **options: Any) -> CompilationManager:
    return CompilationManager(vocabulary, CompilationOptions(cache_dir=str(directory), compile_processes=0, **options))


def walk(index: Index, seed: int, length: int = 30) -> list[tuple[list[int], bool]]:
    """The allowed tokens along a random walk, and whether the text may end."""
    generator = random.Random(seed)
    guide = index.guide()
    seen = []
    for _ in range(length):
        allowed = list(guide.allowed_tokens())
        seen.append((allowed, guide.can_finish))
        if not guide.advance(generator.choice(allowed)) or guide.is_finished:
            break
    return seen


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda one: one.kind.value)
def test_from_disk_it_is_the_same_index_and_warm(
    specification: Specification, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    first = manager_on(vocabulary, tmp_path)
    compiled = first.compile(specification, 60)
    walks = [walk(compiled.index, seed) for seed in range(20)]
    states = compiled.index.states
    first.close(flush=30)
    second = manager_on(vocabulary, tmp_path)
    loaded = second.compile(specification, 60)
    assert loaded.level == "disk"
    assert loaded.index.states == states, "what the first one's requests found is known"
    assert [walk(loaded.index, seed) for seed in range(20)] == walks
    assert loaded.index.states == states, "and nothing had to be found again"
    assert all(walk(loaded.index, seed) == walk(compiled.index, seed) for seed in range(100, 120))
    second.close()


def test_another_vocabulary_or_option_is_another_entry(vocabulary: Vocabulary, tmp_path: Path) -> None:
    manager = manager_on(vocabulary, tmp_path)
    manager.compile(SPECIFICATIONS[0], 60)
    manager.close(flush=30)
    smaller = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
    other = manager_on(smaller, tmp_path)
    assert other.compile(SPECIFICATIONS[0], 60).level == "compile"
    other.close()
    compact = Specification.from_value("json_schema", SCHEMA, {"any_whitespace": False})
    again = manager_on(vocabulary, tmp_path)
    assert again.compile(compact, 60).level == "compile"
    assert again.compile(SPECIFICATIONS[0], 60).level == "disk"
    again.close()


def write_until_killed(vocabulary: Vocabulary, directory: Path, written: int) -> None:
    """In a child process: compile, serve and store, over and over. The first round writes a byte to ``written``."""
    for turn in itertools.count():
        manager = manager_on(vocabulary, directory, store_write_interval=0.005, disk_bytes=DISK)
        for number, specification in enumerate(SPECIFICATIONS):
            index = manager.compile(specification, 60).index
            for seed in range(3):  # the index grows and is written again
                walk(index, 1000 * turn + 10 * number + seed)
        manager.flush()
        if turn == 0:
            os.write(written, b"x")
        manager._table.memory.evict(1.0)
        manager.close(flush=1.0)


def test_kill_nine_while_indexes_are_written(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Kills at random moments, 50 with CASES=all: every index served from disk afterwards is as good as a new one."""
    fresh = [ENGINE.compile(one, vocabulary) for one in SPECIFICATIONS]
    random_moment, served = random.Random(9), 0
    for turn in range(few(50)):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # the kernels are loaded already, so the child writes from its first millisecond
            try:
                write_until_killed(vocabulary, tmp_path, writing)
            finally:
                os._exit(1)
        os.close(writing)
        assert os.read(reading, 1) == b"x", "the child died by itself"
        time.sleep(random_moment.random() * 0.1)
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        os.close(reading)
        manager = manager_on(vocabulary, tmp_path, disk_bytes=DISK)
        for index, specification in zip(fresh, SPECIFICATIONS, strict=True):
            compiled = manager.compile(specification, 60)
            served += compiled.level == "disk"
            seed = 7 * turn
            assert walk(compiled.index, seed) == walk(index, seed)
        assert manager.metrics.value("dotllm_cache_entries_ignored", "disk") == 0, "an entry is whole or not there"
        assert manager._stored.disk.usage()[0] <= DISK
        manager.close(flush=0)
    assert served > 3 * few(50)


def test_refusals_come_through_the_manager(vocabulary: Vocabulary, tmp_path: Path) -> None:
    manager = manager_on(vocabulary, tmp_path)
    with pytest.raises(InvalidSpecError):
        manager.compile(Specification.create("regex", "(a"), 60)
    with pytest.raises(InvalidSpecError):
        manager.compile(Specification.create("json_schema", '{"type": 1}'), 60)
    with pytest.raises(InvalidSpecError):
        manager.compile(Specification.create("choice", '{"not": "a list"}'), 60)
    manager.close()


def test_in_a_process_it_is_the_same_index(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling here first lets the process find compiled kernels. Its limits are not under test, and it is niced: with
    # three busy processes on a core, five seconds of work take it a minute.
    here = ENGINE.compile(SPECIFICATIONS[0], vocabulary)
    monkeypatch.setattr(process, "START_TIMEOUT_S", 3600.0)
    compiler = ProcessCompiler(vocabulary, processes=1, timeout=3600, memory=1 << 30)
    try:
        far = compiler.compile(SPECIFICATIONS[0], threading.Event())
        assert [walk(far, seed) for seed in range(20)] == [walk(here, seed) for seed in range(20)]
        with pytest.raises(InvalidSpecError):
            compiler.compile(Specification.create("regex", "(a"), threading.Event())
        with pytest.raises(InvalidSpecError, match="refers to itself"):  # a subclass that only its reader knows
            looped = Specification.create("json_schema", '{"dependentSchemas": {"a": {"$ref": "#"}}}')
            compiler.compile(looped, threading.Event())
    finally:
        compiler.close()


def test_whatever_the_memory_limit_is_it_is_a_refusal_that_names_it(vocabulary: Vocabulary) -> None:
    """Memory may run out in a kernel, in NumPy, in a mapping, or while the specification is read."""
    properties = {f"property_{i}": {"type": "string", "pattern": f"^(a|b|[c-f]){{3,{10 + i}}}x$"} for i in range(200)}
    specifications = (
        Specification.create("regex", "(a|b)*a(a|b){14}"),
        Specification.from_value("json_schema", {"type": "object", "properties": properties}),
        Specification.from_value("json_schema", {"enum": [f"{i}" * 5 for i in range(20_000)]}),
    )
    outcomes = set()
    # The first is too little even for reading the last one, the second for compiling some, the third is enough for all.
    few_of_them = (specifications[2:], specifications, specifications[:1])
    for memory, asked in zip((1 << 20, 3 << 20, 1 << 30), few_of_them, strict=True):
        compiler = ProcessCompiler(vocabulary, processes=1, timeout=3600, memory=memory)
        try:
            for specification in specifications if EVERY else asked:
                try:
                    outcomes.add(bool(compiler.compile(specification, threading.Event())))
                except CompileMemory as error:
                    assert f"more than {memory >> 20} MiB" in str(error)
                    outcomes.add(False)
            assert compiler.compile(Specification.create("choice", '["x"]'), threading.Event()), (
                "nothing is left of them"
            )
        finally:
            compiler.close()
    assert outcomes == {True, False}


@pytest.mark.parametrize("processes", [1, 2])
def test_ahead_of_time(vocabulary: Vocabulary, tmp_path: Path, processes: int) -> None:
    example = json.dumps({"name": "Ada", "age": 36})
    inputs = [Input(one.kind.value, one, (example,) if one.kind == "json_schema" else ()) for one in SPECIFICATIONS]
    inputs.append(Input("bad", Specification.create("regex", "(a")))
    options = CompilationOptions(cache_dir=str(tmp_path / "cache"), store=f"file://{tmp_path}/store")
    results = {one.name: one for one in compile_ahead(inputs, ['{"a": 1}'], vocabulary, options, processes)}
    assert results["bad"].refused and "InvalidSpec" in results["bad"].error
    assert results["json_schema"].accepted == 1 and results["json_object"].accepted == 1
    assert all(one.nbytes > 0 for name, one in results.items() if name != "bad")
    tokens = [len(vocabulary.encode(text.encode())) for text in (example, '{"a": 1}')]
    assert results["json_object"].masks == tokens[1] + 1, "one before each token, and one behind the last"
    assert tokens[0] + 1 < results["json_schema"].masks <= sum(tokens) + 2 and not results["bad"].masks
    assert all(0 <= one.seconds < 600 for one in results.values())
    # A server with an empty disk finds the indexes in the store, warm.
    manager = manager_on(vocabulary, tmp_path / "empty", store=options.store, store_timeout=30.0)
    manager._engine = ENGINE._replace(compile=lambda *arguments: threading.Event().wait(30))  # the store must answer
    compiled = manager.compile(SPECIFICATIONS[0], 60)
    assert compiled.level == "store"
    states = compiled.index.states
    guide = compiled.guide()
    for token in vocabulary.encode(example.encode()):
        _ = guide.mask_row
        assert guide.advance(token)
    assert compiled.index.states == states and guide.can_finish
    manager.close(flush=0)


def test_rows_of_evicted_indexes_are_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.index.token_space.EPOCH_S", 0.0)
    own = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
    manager = manager_on(own, tmp_path, cache_memory_bytes=600_000, disk_bytes=0)
    for number in range(60):
        pattern = Specification.create("regex", f"{number}[{chr(97 + number % 20)}-z]{{2,4}}")
        walk(manager.compile(pattern, 60).index, number)
    assert manager._table.memory.nbytes < 600_000 + manager._engine.shared_bytes(own)
    rows = ENGINE.shared_bytes(own)
    manager._table.memory.evict(1.0)
    for _ in range(3):
        ENGINE.collect(own)
    assert ENGINE.shared_bytes(own) < rows
    manager.close()


def test_long_answers_at_once_do_not_end_one_another(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Four answers that each nearly fill an index, repeatedly, in an engine's batches. A full index is not cached."""
    names = [f"v{i}" for i in range(40)]
    schema = {"type": "array", "items": {"enum": names}, "uniqueItems": True}
    manager = manager_on(vocabulary, tmp_path, disk_bytes=0)
    compiled = manager.compile(Specification.from_value("json_schema", schema), 60)
    first = weakref.ref(compiled.index)
    compiled.index.mem[layout.H_LIMIT] = 450_000  # type: ignore[attr-defined]
    rng = random.Random(1)
    for _ in range(3):
        texts = [vocabulary.encode(json.dumps(rng.sample(names, 36)).encode()) for _ in range(4)]
        guides = [compiled.guide() for _ in texts]
        bitmask = np.zeros((4, vocabulary.words), np.int32)
        for step in range(max(map(len, texts))):
            here = [i for i, text in enumerate(texts) if step < len(text)]
            assert not fill_masks([guides[i] for i in here], bitmask, here)
            tokens = [texts[i][step] for i in here]
            assert all(bitmask[i, token >> 5] >> (token & 31) & 1 for i, token in zip(here, tokens, strict=True))
            accepted, failures = advance_guides([guides[i] for i in here], tokens)
            assert all(accepted) and not failures
        assert all(guide.can_finish for guide in guides)
        assert manager._pinned.count(manager._table.cached_indexes()) > 0, "those that guides have moved to"
        del guides
    compiled.guide()
    gc.collect()
    assert first() is None and len(compiled.index.generations) == 1
    assert manager._pinned.count(manager._table.cached_indexes()) == 0
    manager.close()


def test_an_entry_is_small_and_loads_fast(tmp_path: Path, tekken_json: bytes | None) -> None:
    if tekken_json is None:
        pytest.skip("the tekken vocabulary is not next to the repository")
    from tokenizers import Tokenizer

    large = Vocabulary.from_tokenizer(Tokenizer.from_str(tekken_json.decode()), eos_token_ids=2)
    index = ENGINE.compile(SPECIFICATIONS[0], large)
    guide = index.guide()
    for token in large.encode(b'{"name": "Ada Lovelace", "age": 36}'):
        _ = guide.mask_row
        guide.advance(token)
    path = tmp_path / "index"
    index.save(path)
    assert path.stat().st_size < 300_000
    times = []
    for _ in range(20):
        start = time.process_time()
        loaded = Index.load(path, large)
        times.append(time.process_time() - start)
    assert np.median(times) < 0.005 and loaded.states == index.states


@pytest.mark.parametrize(
    "prepare",
    sample(
        ["from dotllm.compilation.compiler import prepare; prepare()", "from dotllm.cli.warmup import main; main([])"]
    ),
)
def test_everything_with_kernels_is_loaded_before_the_first_request(prepare: str) -> None:
    """On a new machine, importing a module compiles its kernels. That takes seconds, in which a server's loop waits
    for the interpreter."""
    script = """
import pathlib, sys
root = pathlib.Path(sys.modules["dotllm"].__file__).parent
for folder in ("automata", "grammar", "index", "languages", "vocabulary"):
    for path in sorted((root / folder).rglob("*.py")):
        name = ".".join(("dotllm", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        if "import kernel" in path.read_text() and name not in sys.modules:
            print(name)
"""
    result = subprocess.run(
        [sys.executable, "-c", f"{prepare}\nprint('loaded')\n{script}"], capture_output=True, text=True, check=True
    )
    assert result.stdout.split("loaded\n")[1] == ""


def test_rows_are_collected_before_their_table_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the cache may be: the table of rows does not grow with it."""
    tokens = [bytes([byte]) for byte in range(256)]
    monkeypatch.setattr("dotllm.index.token_space.MAX_ROWS", 256)
    monkeypatch.setattr("dotllm.index.token_space.EPOCH_S", 0.0)
    vocabulary = Vocabulary.from_bytes(tokens, eos_token_ids=256, size=257)
    manager = manager_on(vocabulary, tmp_path, disk_bytes=0, cache_memory_bytes=1 << 32)
    try:
        for number in range(60):
            letters = "".join(chr(97 + (number * step) % 26) for step in (1, 3, 5, 7, 9, 11))
            regex = "".join(f"[{letter}{number}]" for letter in letters) + str(number)
            walk(manager.submit(Specification.create("regex", regex)).result(60).index, seed=number)
            manager._measure_memory(0.0)
    finally:
        manager.close()
