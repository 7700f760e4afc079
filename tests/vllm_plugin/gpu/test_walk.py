"""The GPU's walk beside the engine core's, step by step, with the delay that asynchronous scheduling has."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

from dotllm import Index, Vocabulary  # noqa: E402
from dotllm.index import gpu_tables  # noqa: E402
from dotllm.index.index import FINISHED  # noqa: E402
from dotllm.vllm_plugin.engine_core.request_grammar import BitmaskView, RequestGrammar  # noqa: E402
from dotllm.vllm_plugin.gpu import heap  # noqa: E402
from dotllm.vllm_plugin.gpu import walk as walk_module  # noqa: E402
from dotllm.vllm_plugin.gpu.entry import LOOKED_AT  # noqa: E402
from dotllm.vllm_plugin.gpu.walk import Walk  # noqa: E402
from dotllm.vllm_plugin.gpu.walk_message import LENGTH, MASK  # noqa: E402
from dotllm.vllm_plugin.gpu.walker import Walker  # noqa: E402
from dotllm.vllm_plugin.gpu_masks.mask_table import MaskTable  # noqa: E402
from dotllm.vllm_plugin.gpu_masks.rows import RowSender  # noqa: E402

WORDS = [
    b"true",
    b"false",
    b'":',
    b'{"',
    b'"}',
    b'","',
    b"red",
    b"re",
    b"ed",
    b"na",
    b"name",
    b"ame",
    "é".encode(),
    b"\xc3",
    b"\xa9",
]
TOKENS: list[bytes | None] = [bytes([i]) for i in range(256)] + WORDS + [None, None, None]
EOS, EOT, CALL = len(TOKENS) - 3, len(TOKENS) - 2, len(TOKENS) - 1
PROMPT = 7


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS, special_tokens={"<eot>": EOT, "<call>": CALL})


@dataclass
class Batch:
    """What a walker reads of vLLM's input batch."""

    req_ids: list[str]
    idx_mapping: torch.Tensor
    seq_lens: torch.Tensor
    input_ids: torch.Tensor
    logits_indices: torch.Tensor


@dataclass
class Request:
    grammar: RequestGrammar
    tokens: list[int] = field(default_factory=list)  # what was sampled, as the CPU will learn it


class Engine:
    """An engine core and a worker with one step in flight: tokens of a step are known after the next one is launched."""

    def __init__(self, index: Index, seed: int = 0, slots: int = 8) -> None:
        self.space = index.space
        self.walk = Walk(index.space, RowSender(index.space), slots)
        self.walker = Walker(MaskTable(torch.device("cpu")))
        self.generator = np.random.default_rng(seed)
        self.requests: dict[str, Request] = {}
        self.order: list[str] = []
        self.lengths = torch.full((64,), -1, dtype=torch.int32)
        states = SimpleNamespace(
            total_len=SimpleNamespace(gpu=self.lengths),
            prefill_len=SimpleNamespace(gpu=torch.full((64,), PROMPT, dtype=torch.int32)),
        )
        self.walker.states = states
        self.state_of: dict[str, int] = {}
        self.flight: list[tuple[int, list[tuple[str, list[int]]]]] = []
        self.free: list[int] = list(range(64))
        self.sat_out = self.sampled = 0

    def add(self, name: str, index: Index, stops: tuple[int, ...] = ()) -> None:
        grammar = RequestGrammar(index.guide(), stops, index.vocabulary, BitmaskView())
        self.requests[name] = Request(grammar)
        state = self.state_of[name] = self.free.pop()
        self.lengths[state] = PROMPT
        self.walk.assign(name, grammar, PROMPT)
        self.order.append(name)

    def remove(self, name: str) -> None:
        self.order.remove(name)
        self.walk.release(name)
        self.free.append(self.state_of.pop(name))
        del self.requests[name]

    def launch(self) -> None:
        names = list(self.order)
        step = self.walk.message()
        if step.places is not None:
            masks = step.places[:, MASK]
            masks = masks[masks >= 0]
            assert (self.walk.sender._sent[masks] == self.space.versions[masks]).all(), "a mask that is not there"
        self.walker.update(step, names)
        logits = torch.zeros((len(names), len(TOKENS)))
        last = [self.requests[n].tokens[-1:] or [0] for n in names]
        state_of = torch.tensor([self.state_of[n] for n in names], dtype=torch.int32)
        batch = Batch(
            names, state_of, self.lengths[state_of.long()], torch.tensor(last, dtype=torch.int32).view(-1),
            torch.arange(len(names)),
        )  # fmt: skip
        self.walker.mask(logits, batch)
        noise = torch.from_numpy(self.generator.gumbel(size=logits.shape))
        sampled = (logits + noise).argmax(dim=1, keepdim=True)
        count, rejected = self.walker.counts or ()
        results = []
        for i, name in enumerate(names):
            assert int(count[i]) + int(rejected[i]) == 1
            if count[i]:
                self.check_mask(name, logits[i])
                self.lengths[self.state_of[name]] += 1
                self.requests[name].tokens.append(int(sampled[i, 0]))
            results.append((name, [int(sampled[i, 0])] if count[i] else []))
        self.flight.append((self.walk.clock, results))

    def check_mask(self, name: str, logits: torch.Tensor) -> None:
        """What was sampled from is the mask after all tokens before, which an own guide takes one by one."""
        request = self.requests[name]
        guide = request.grammar.guide.index.guide()
        own = RequestGrammar(guide, request.grammar.stops, guide.index.vocabulary, BitmaskView())
        assert own.accept_tokens(name, request.tokens)
        bits = torch.full((1, self.space.words), -1, dtype=torch.int32)
        if not own.is_terminated():
            own.fill_bitmask(bits, 0)
        allowed = np.unpackbits(bits.numpy().view(np.uint8), bitorder="little")[: len(TOKENS)] == 1
        assert np.array_equal(~torch.isinf(logits).numpy(), allowed)

    def receive(self) -> None:
        clock, results = self.flight.pop(0)
        taken, missed = [], 0
        for name, tokens in results:
            if name not in self.requests:
                continue
            if tokens:
                taken.append((name, tokens[0]))
                self.sampled += 1
            else:
                missed += 1
        self.walk.missed(missed)
        self.sat_out += missed
        slots = self.walk.slots_of([name for name, _ in taken])
        self.walk.take(slots, self.walk.leases[slots], array("i", [token for _, token in taken]), clock)
        for name, token in taken:  # vLLM's own call
            assert self.requests[name].grammar.accept_tokens(name, [token])
            if token in (EOS, *self.requests[name].grammar.stops):
                self.remove(name)

    def run(self, limit: int = 400) -> None:
        while self.order and limit:
            limit -= 1
            self.launch()
            if len(self.flight) == 2:
                self.receive()
        assert limit, "requests do not end"


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "colour": {"enum": ["red", "green", "redder"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 250},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "colour", "n", "flags"],
    "additionalProperties": False,
}


def test_masks_are_right_and_misses_become_rare(vocabulary: Vocabulary) -> None:
    index = Index.from_json_schema(SCHEMA, vocabulary, any_whitespace=False)
    engine = Engine(index)
    shares = []
    for wave in range(6):
        engine.sat_out = engine.sampled = 0
        for i in range(5):
            engine.add(f"{wave}-{i}", index)
        engine.run()
        shares.append(engine.sat_out / engine.sampled)
    assert shares[-1] < 0.25 * shares[0] and shares[-1] < 0.15, shares


def test_masks_found_ahead_travel_before_they_are_used(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places that the device has without their masks get these from the prefetching thread at any moment. Following
    then names a mask that the device does not have (an empty one, from which token 0 is sampled)."""
    monkeypatch.setattr(walk_module.Prefetcher, "want", lambda *_: None)
    index = Index.from_regex("[a-f]{1,6}(red|redder)[0-9]{2}(true|false)(name|same|game)é{2,3}", vocabulary)
    engine = Engine(index, seed=11)
    for wave in range(6):
        for i in range(4):
            engine.add(f"{wave}-{i}", index)
        while engine.order:
            engine.launch()
            if len(engine.flight) == 2:
                engine.receive()
            for entry in engine.walk._active:  # what the thread does
                table = entry.table
                unknown = np.nonzero((table.since != gpu_tables.NEVER) & (table.rows[:, gpu_tables.ROW] < 0))[
                    0
                ].tolist()
                for config in unknown:
                    table.set_row(config, index.mask_row(config))
                    entry.changed.add(config)


def test_masks_that_are_found_together_are_right(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """(See `Engine.check_mask`.) Requests on indexes of their own, some with stop tokens, some that remember."""
    monkeypatch.setattr(walk_module, "Lead", lambda: SimpleNamespace(waits=True, took=lambda *_: None))
    unique = {"type": "array", "items": {"enum": ["na", "red", "re"]}, "uniqueItems": True}
    together, found = walk_module.masks_of, []
    monkeypatch.setattr(walk_module, "masks_of", lambda guides: found.append(len(guides)) or together(guides))
    engine = Engine(Index.from_regex("a", vocabulary), seed=8, slots=16)
    for wave in range(2):
        for i in range(8):
            schema = unique if i == 7 else SCHEMA
            index = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
            engine.add(f"{wave}-{i}", index, (EOT,) if i == 6 else ())
        engine.run()
    assert max(found) >= 5


def test_requests_come_and_go_on_many_indexes(vocabulary: Vocabulary) -> None:
    indexes = [Index.from_regex(p, vocabulary) for p in ("[a-z]{3,9}", "(true|false)+", "é{1,5}[0-9]*", '[^"]{0,20}')]
    engine = Engine(indexes[0], seed=3, slots=2)
    for i in range(16):
        engine.add(str(i), indexes[i % 4])
        engine.launch()
        if len(engine.flight) == 2:
            engine.receive()
    engine.run()
    assert engine.walk.slot_of == {} and engine.sampled > 60


@pytest.mark.parametrize("stops", [(EOT,), (EOT, ord("\n"))])
def test_stop_tokens(vocabulary: Vocabulary, stops: tuple[int, ...]) -> None:
    index = Index.from_regex("(abc|a{2,5}b*)c?", vocabulary)
    engine = Engine(index, seed=5)
    for wave in range(3):
        for i in range(4):
            engine.add(f"{wave}-{i}", index, stops)
        index.space.collect()  # rows that no index knows may change their numbers
        engine.run()


@pytest.mark.parametrize("stops", [(), (EOT,)])
def test_a_guide_that_remembers_is_not_followed(vocabulary: Vocabulary, stops: tuple[int, ...]) -> None:
    """(`Engine.check_mask` compares with the masks of a guide of its own.)"""
    words = {
        "type": "array",
        "items": {"type": "string", "pattern": "^(na|red|re.?)$"},
        "uniqueItems": True,
        "maxItems": 6,
    }
    index = Index.from_json_schema(words, vocabulary, any_whitespace=False)
    assert index.guide().remembers
    plain = Index.from_json_schema(SCHEMA, vocabulary, any_whitespace=False)
    engine = Engine(index, seed=2)
    for wave in range(2):
        for i in range(3):
            engine.add(f"{wave}-{i}", index, stops)
        engine.add(f"{wave}-plain", plain)
        engine.run()
        index.space.collect()
    assert engine.sampled > 40


def test_a_token_by_its_id_waits_for_the_cpu(vocabulary: Vocabulary) -> None:
    from dotllm.grammar import Grammar

    grammar = Grammar()
    grammar.start = grammar.seq([grammar.literal("ab"), grammar.tokens(frozenset([CALL])), grammar.literal("red")])
    index = Index.from_grammar_object(grammar, vocabulary)
    engine = Engine(index, seed=1)
    for i in range(3):
        engine.add(str(i), index)
    engine.run()
    assert engine.sat_out >= 3


def test_the_heap_begins_anew_when_it_is_full(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "HEAP_LIMIT", 60_000)
    patterns = [f"[a-z]{{2,5}}{i}" for i in range(6)]
    indexes = [Index.from_regex(p, vocabulary) for p in patterns]
    engine = Engine(indexes[0], seed=2)
    for wave in range(2):
        for i, index in enumerate(indexes):
            engine.add(f"{wave}-{i}", index)
            engine.launch()
            if len(engine.flight) == 2:
                engine.receive()
    engine.run()
    assert engine.walk.describe()["heap_ints"] <= 60_000


def test_tables_that_nobody_comes_to_write_nothing_into_those_of_others(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Being filled ahead, they have something new to send when the heap begins anew, and when they are forgotten."""
    monkeypatch.setattr(heap, "HEAP_LIMIT", 9_000)
    monkeypatch.setattr(walk_module.Prefetcher, "want", lambda *_: None)
    monkeypatch.setattr(walk_module, "Lead", lambda: SimpleNamespace(waits=False, took=lambda *_: None))
    sent: list[Any] = []
    patches_of = heap.Heap._patches_of

    def checked(self: Any, entry: Any, *rest: Any) -> None:
        sent.append(entry)
        patches_of(self, entry, *rest)

    monkeypatch.setattr(heap.Heap, "_patches_of", checked)
    engine = Engine(Index.from_regex("a", vocabulary), seed=2)
    for i in range(9):
        index = Index.from_regex(f"[a-z]{{2,5}}{i}", vocabulary)
        engine.add(str(i), index)
        engine.run()
        for entry in engine.walk._filling:  # what the thread does
            with entry.index.lock:
                entry.changed.update(entry.table.expand(range(1, entry.index.configurations)))
        sent.clear()
        engine.walk._send_filled()
        engine.walk.message()
        kept = [e for e in engine.walk._entries.values() if e.capacity]
        ends = sorted((e.base, e.base + heap.HEADER + e.capacity * e.table.columns) for e in kept)
        assert all(end <= start for (_, end), (start, _) in pairwise(ends))
        assert set(sent) <= set(kept), "what is sent lies where it was put"
    assert len(engine.walk._filling) == len(engine.walk._entries) < 9, "the heap has begun anew"


def test_a_preempted_request_is_found_again(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[a-z]{9}", vocabulary)
    engine = Engine(index, seed=4)
    engine.add("a", index)
    for _ in range(4):
        engine.launch()
        if len(engine.flight) == 2:
            engine.receive()
    while engine.flight:
        engine.receive()
    engine.free.append(engine.state_of["a"])
    engine.state_of["a"] = state = engine.free.pop(0)  # another place in the model runner
    engine.lengths[state] = PROMPT + len(engine.requests["a"].tokens)
    engine.walker.walked.zero_()
    engine.walk.resumed("a")
    engine.run()


def test_the_device_goes_on_from_a_place_that_is_a_token_behind(vocabulary: Vocabulary) -> None:
    """What the engine core knows is always one behind, and a table may have moved since the last walk."""
    index = Index.from_regex("[a-z]{9}", vocabulary)
    engine = Engine(index, seed=6)
    for wave in range(2):  # the second finds all places known
        engine.sat_out = 0
        engine.add(str(wave), index)
        while engine.order:
            if wave:
                engine.walker.walked.zero_()
                engine.walk._stale = True
            engine.launch()
            if len(engine.flight) == 2:
                engine.receive()
    assert engine.sat_out == 0


def test_in_the_middle_of_a_prompt_nothing_is_sampled_or_repeated(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[a-z]{4}", vocabulary)
    engine = Engine(index)
    for name in ("a", "b"):
        engine.add(name, index)
    engine.walk.reserve("placeless")
    names = ["a", "placeless", "free", "b", "free"]
    engine.walker.update(engine.walk.message(), names)
    engine.lengths[:] = PROMPT
    ran = torch.tensor([PROMPT, PROMPT, PROMPT, PROMPT - 1, PROMPT - 1], dtype=torch.int32)
    logits, here = torch.zeros((5, len(TOKENS))), torch.arange(5)
    engine.walker.mask(logits, Batch(names, here, ran, torch.zeros(5, dtype=torch.int32), here))
    assert [count.tolist() for count in engine.walker.counts or ()] == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    masked = torch.isinf(logits).any(dim=1).tolist()
    assert masked == [True, False, False, True, False]


def test_a_failing_grammar_ends_alone(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.errors import BudgetExceeded

    monkeypatch.setattr(walk_module.Prefetcher, "want", lambda *_: None)  # which would find the masks before us
    good, bad = Index.from_regex("[a-z]{5}", vocabulary), Index.from_regex("[0-9]{5}", vocabulary)
    engine = Engine(good)
    engine.add("good", good)
    engine.add("bad", bad)

    def fails(config: int) -> int:
        raise BudgetExceeded("too much", keyword="steps")

    engine.launch()
    monkeypatch.setattr(bad, "mask_row", fails)
    engine.launch()
    clock, results = engine.flight[0]
    slots = engine.walk.slots_of([n for n, _ in results])
    engine.walk.take(slots, engine.walk.leases[slots], array("i", [t[0] for _, t in results]), clock)
    engine.walk.message()
    assert engine.requests["bad"].grammar.failed and not engine.requests["good"].grammar.failed


def test_steps_without_news_send_nothing(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[a-z]*", vocabulary)
    engine = Engine(index)
    engine.add("a", index)
    steps: list[Any] = []
    for _ in range(12):
        engine.launch()
        if len(engine.flight) == 2:
            engine.receive()
        if "a" not in engine.requests:
            break
        steps.append(engine.walk._stale)
    assert engine.walk.message() is not None


def test_tables_lead_where_the_machine_does(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token of a run, taken by the tables or left to the machine, beside the machine alone."""
    from dotllm.grammar import Grammar
    from dotllm.index import gpu_tables
    from dotllm.index.gpu_tables import FLAGS
    from dotllm.vllm_plugin.gpu.follow import TableBatch

    grammar = Grammar()
    grammar.start = grammar.seq([grammar.literal("ab"), grammar.tokens(frozenset([CALL])), grammar.literal("red")])
    indexes = [
        Index.from_json_schema(SCHEMA, vocabulary, any_whitespace=False),
        Index.from_regex("(true|false)+é{1,5}", vocabulary),
        Index.from_grammar_object(grammar, vocabulary),
    ]
    engine = Engine(indexes[0], seed=7)
    follow, asked = TableBatch.follow_tables, gpu_tables.Batch.follow
    machine: list[int] = []
    taken = ended = 0

    def counting(self: Any, space: Any, slots: list[int], *rest: Any) -> Any:
        machine.append(len(slots))
        return asked(self, space, slots, *rest)

    def checked(self: Any, slots: list[int], leases: Any, tokens: list[int], now: int) -> tuple[list[int], Any]:
        nonlocal taken, ended
        taken += len(slots)
        before = self.configs[slots].tolist()
        lengths = self.places[slots, 1].tolist()
        left, flags = follow(self, slots, leases, tokens, now)
        for i, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
            entry = engine.walk.entry_of[slot]
            assert entry is not None
            after = int(self.configs[slot])
            assert after == (before[i] if i in left else entry.index.advance(before[i], token))
            assert self.places[slot, 1] == lengths[i] + (i not in left), "a place moves exactly when it is not left"
            ended += after == FINISHED
            flags_there = LOOKED_AT if after == FINISHED else entry.table.rows[after, FLAGS]
            assert flags[i] == (0 if i in left else flags_there)
        return left, flags

    monkeypatch.setattr(gpu_tables.Batch, "follow", counting)
    monkeypatch.setattr(TableBatch, "follow_tables", checked)
    for wave in range(5):
        for i in range(6):
            engine.add(f"{wave}-{i}", indexes[i % 3])
        engine.run()
    assert 0 < sum(machine) < 0.5 * taken, "most tokens are taken by the tables"
    assert ended, "and so are ends"


def test_tables_pass_over_who_has_gone_and_leave_ends_that_are_none(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[a-z]{2}", vocabulary)
    engine = Engine(index)
    for name in ("ends", "gone", "too soon"):
        engine.add(name, index)
        engine.launch()
    walk = engine.walk
    slots = walk.slots_of(["ends", "gone", "too soon"])
    leases = walk.leases[slots]
    finishing = index.advance(index.advance(1, ord("a")), ord("b"))
    entry = walk.entry_of[slots[0]]
    entry.table.expand(range(1, index.configurations))
    entry.table.since[:] = 0
    walk._refresh(entry)
    walk.batch.configs[slots] = finishing, finishing, 1
    walk.release("gone")
    walk.reserve("another")
    assert walk.slots_of(["another"]) == slots[1]
    walk.batch.configs[slots[1]] = finishing
    before = walk.batch.places[slots].copy()
    left, flags = walk.batch.follow_tables(slots, leases, array("i", [EOS] * 3), walk.clock)
    assert left == [2] and flags.tolist() == [LOOKED_AT, LOOKED_AT, 0]
    assert walk.batch.configs[slots].tolist() == [FINISHED, finishing, 1]
    assert (walk.batch.places[slots][:, LENGTH] - before[:, LENGTH]).tolist() == [1, 0, 0]
    assert (walk.batch.places[slots][1:] == before[1:]).all(), "who has come into a slot stays where he is"


def test_prefetching_gives_way_to_steps_only(vocabulary: Vocabulary) -> None:
    from dotllm.vllm_plugin.gpu import prefetch

    walk = Engine(Index.from_regex("[a-z]*", vocabulary)).walk
    assert walk._prefetcher._pause(0.001) == prefetch.MIN_PAUSE_S, "nothing runs"
    walk.step_is_launched()
    assert walk._prefetcher._pause(0.001) == pytest.approx(0.001 * prefetch.PAUSES_PER_VISIT)


def test_prefetching_uses_what_the_loop_waits_for_the_device(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dotllm.vllm_plugin.gpu import prefetch

    walk = Engine(Index.from_regex("[a-z]*", vocabulary)).walk
    now = 1000.0
    monkeypatch.setattr(prefetch.time, "monotonic", lambda: now)

    def steps(waited: float, count: int = 24) -> None:
        nonlocal now
        for _ in range(count):
            walk.step_is_launched()
            walk.is_launched()
            now += waited
            walk.results_are_there()
            walk.results_are_there()  # (of a step without a message)

    steps(prefetch.LAUNCH_S / 2)
    assert walk._prefetcher._pause(0.001) == pytest.approx(0.001 * prefetch.PAUSES_PER_VISIT), "the host sets the pace"
    steps(prefetch.LAUNCH_S + 3 * prefetch.SPARE_S)
    assert walk._prefetcher._pause(0.001) == pytest.approx(0.001), "the device does"
    steps(prefetch.LAUNCH_S / 2)
    assert walk._prefetcher._pause(0.001) == pytest.approx(0.001 * prefetch.PAUSES_PER_VISIT)


def test_what_is_found_ahead_travels_in_one_step(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many masks and no more, though many places share them."""
    from dotllm.index.gpu_tables import ROW, UNKNOWN_ROW
    from dotllm.vllm_plugin.gpu import prefetch
    from dotllm.vllm_plugin.gpu.entry import Entry

    index = Index.from_regex("(a|bc){0,40}d", vocabulary)
    found = {}
    for most in (4, 512):
        monkeypatch.setattr(prefetch, "MASKS", most)
        entry, prefetcher, at = Entry(index), prefetch.Prefetcher(index.space), 1
        while at:
            at = prefetcher.visit(entry, at)
        rows = entry.table.rows[:, ROW]
        found[most] = rows[rows != UNKNOWN_ROW]
        assert set(found[most].tolist()) == entry.found_ahead
        assert entry.table.is_expanded(index.configurations - 1), "all transitions"
    assert len(set(found[4].tolist())) == 4
    assert len(found[512]) >= index.configurations - 2
