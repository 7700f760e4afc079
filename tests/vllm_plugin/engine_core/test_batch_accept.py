"""All grammars take a step's tokens in one call: vLLM's own scheduler with ours before it, step by step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import RequestStatus

from dotllm import Guide, Index, Vocabulary
from dotllm.device_masks.sender import Bitmasks
from dotllm.index import draft_rows
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.speed import batch_accept
from dotllm.vllm_plugin.speed.batch_accept import MIN_BATCH, accept
from tests.vllm_plugin.engine_core.test_pending_grammars import Bench, vllm_config

pytestmark = pytest.mark.serve
__all__ = ["vllm_config"]

TOKENS: list[bytes | None] = [bytes([i]) for i in range(126)] + [b"ab", None]
A, B, C, AB, EOS = ord("a"), ord("b"), ord("c"), 126, 127


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS)


@pytest.fixture(scope="module")
def index(vocabulary: Vocabulary) -> Index:
    return Index.from_regex("(ab|c){4,6}", vocabulary)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens that were taken one at a time, outside a batch."""
    seen: list[int] = []
    advance = RequestGrammar._advance

    def counted(self: RequestGrammar, token: int) -> bool:
        seen.append(token)
        return advance(self, token)

    monkeypatch.setattr(RequestGrammar, "_advance", counted)
    return seen


def grammar(index: Index, stops: tuple[int, ...] = ()) -> RequestGrammar:
    return RequestGrammar(index.guide(), stops, index.vocabulary)


def batch(config: Any, index: Index, says: dict[str, list[int]]) -> Bench:
    bench = Bench(config)
    for name, tokens in says.items():
        bench.add(name, 3, grammar(index), max_tokens=12)
        bench.says[name] = list(tokens)
    return bench


def run_out(bench: Bench, names: Any) -> None:
    for _ in range(40):
        if all(bench.finish_reason(name) is not None for name in names):
            return
        bench.step()
    raise AssertionError("requests do not end")


SAYS = ([AB, C, A, B, C, EOS], [C, C, C, C, EOS], [A, B, A, B, A, B, A, B, AB, C, EOS], [C, AB, C, AB, C, C, EOS])


def test_the_same_as_one_after_another(vllm_config: Any, index: Index, one_by_one: list[int]) -> None:
    says = {str(i): SAYS[i % 4] for i in range(12)}
    bench = batch(vllm_config, index, says)
    grammars = {name: bench.scheduler.requests[name].structured_output_request._grammar for name in says}
    for step in range(4):
        bench.step()
        for name, one in grammars.items():
            alone = index.guide()
            assert all(alone.advance(token) for token in says[name][: step + 1])
            assert one.guide.config == alone.config and not one.accepted_ahead
            assert one.guide.tokens_taken == step + 1, "each token once"
    assert not one_by_one
    for name in says:
        bench.scheduler.requests[name].sampling_params.ignore_eos = False
        bench.scheduler.requests[name].sampling_params._eos_token_id = EOS
    for _ in range(10):
        bench.step()
    for name, tokens in says.items():
        assert bench.tokens_of(name)[: len(tokens)] == tokens


def test_several_tokens_at_once(vllm_config: Any, index: Index, one_by_one: list[int]) -> None:
    """Accepted drafts bring several tokens: all are taken together, or none, and vLLM's own calls follow."""
    own = [grammar(index) for _ in range(10)]
    said = [[AB, C], [C, C, C], [A, B, C], [C], [A, C], [C, EOS], [C, EOS, A], [], [A, B], [AB]]
    asked = [(one, tokens) for one, tokens in zip(own, said, strict=True) if tokens]
    accepted = accept([one for one, _ in asked], [tokens for _, tokens in asked])
    for one, tokens in asked:
        alone = index.guide()
        whole = all(alone.advance(token) for token in tokens)
        assert one.accepted_ahead == whole == (one in accepted)
        assert one.guide.tokens_taken == (len(tokens) if whole else 0)
        assert not whole or (one.guide.config, one.guide.rollback(len(tokens))) == (alone.config, None)
        assert one.guide.config == index.guide().config
    assert not one_by_one


@pytest.mark.parametrize("running", [False, True])
def test_drafts_are_validated_in_one_call(
    vllm_config: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, *, running: bool
) -> None:
    """The drafts that each grammar allows, as vLLM's own calls find them, for the next step or a running one."""
    index = Index.from_regex("(ab|c){2,6}", vocabulary)
    drafts = {str(i): [[AB, C, A], [A, A, B], [C, 5, C], [B, C, C], [C, EOS, C]][i % 5] for i in range(10)}
    found: list[Any] = []
    asked: set[int] = set()
    accepts = Guide.accepts

    def noted(self: Guide, tokens: list[int]) -> int:
        asked.add(id(self))
        return accepts(self, tokens)

    monkeypatch.setattr(Guide, "accepts", noted)
    for least in (1, 1000):
        monkeypatch.setattr(batch_accept, "MIN_BATCH", least)
        asked.clear()
        bench = Bench(vllm_config)
        for name in drafts:
            bench.add(name, 3, grammar(index, (5,) if name == "2" else ()), max_tokens=12)
            bench.says[name] = [C]
        bench.step()
        brought = DraftTokenIds([*drafts], [[*tokens] for tokens in drafts.values()])
        if running:
            output: Any = SimpleNamespace(scheduled_spec_decode_tokens={name: [-1, -1] for name in drafts})
            bench.scheduler.update_draft_token_ids_in_output(brought, output)
            found.append((output.scheduled_spec_decode_tokens, output.num_invalid_spec_tokens))
        else:
            bench.scheduler.update_draft_token_ids(brought)
            found.append(({name: bench.scheduler.requests[name].spec_token_ids for name in drafts}, {}))
        assert len(asked) == (1 if least == 1 else 10), "one has stop tokens of its own"
        grammars = (bench.scheduler.requests[name].structured_output_request._grammar for name in drafts)
        assert {one.allowed_ahead for one in grammars} == {-1}
    assert found[0] == found[1]
    assert found[0][0]["2"] == [C, 5] and found[0][0]["4"] == [C, EOS]


def test_guides_of_plain_requests_run(vllm_config: Any, index: Index, one_by_one: list[int]) -> None:
    """However few there are: vLLM asks none of their grammars. One that is asked is up to date, and runs again."""
    bench = batch(vllm_config, index, {str(i): [C, C, C] for i in range(3)})
    bench.add("stops", 3, grammar(index, (5,)), max_tokens=12)
    bench.says["stops"] = [C, C, C]
    bench.add("free", 3)
    bench.scheduler.structured_output_manager.backend.step_masks = Bitmasks(index.space, 1)
    bench.step()
    bench.step()
    running = bench.scheduler._batch._running
    assert {*running} == {"0", "1", "2"} and one_by_one == [C, C]
    asked = bench.scheduler.requests["1"].structured_output_request._grammar
    assert asked._guide.tokens_taken == 0 and asked.guide.tokens_taken == 2 and {*running} == {"0", "2"}
    bench.step()
    assert {*running} == {"0", "1", "2"} and one_by_one == [C, C, C] and asked.guide.tokens_taken == 3
    bench.scheduler.finish_requests(["0"], RequestStatus.FINISHED_ABORTED)
    bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert not [*running] and "accept_tokens" not in vars(bench.scheduler.structured_output_manager)


def test_few_requests_are_asked_one_after_another(vllm_config: Any, index: Index, one_by_one: list[int]) -> None:
    bench = batch(vllm_config, index, {str(i): [C, C] for i in range(MIN_BATCH - 1)})
    bench.step()
    assert one_by_one == [C] * (MIN_BATCH - 1)


def test_a_step_that_has_sampled_nothing(vllm_config: Any, index: Index) -> None:
    """In this case vLLM's output has no list for each request."""
    says = {str(i): [C] for i in range(MIN_BATCH)}
    bench = batch(vllm_config, index, says)
    scheduled = bench.scheduler.schedule()
    bench.scheduler.get_grammar_bitmask(scheduled)
    numbers = {name: i for i, name in enumerate(says)}
    bench.scheduler.update_from_output(scheduled, ModelRunnerOutput(req_ids=[*says], req_id_to_index=numbers))
    grammars = [bench.scheduler.requests[name].structured_output_request._grammar for name in says]
    assert {one.guide.tokens_taken for one in grammars} == {0} and not any(one.failed for one in grammars)


def test_unconstrained_requests_beside_them(vllm_config: Any, index: Index, one_by_one: list[int]) -> None:
    bench = batch(vllm_config, index, {str(i): [C, C, C] for i in range(MIN_BATCH)})
    bench.add("free", 3)
    bench.step()
    bench.step()
    assert not one_by_one and bench.tokens_of("free") == [7, 7] and bench.tokens_of("3") == [C, C]


def test_a_token_that_is_not_allowed_ends_its_request_alone(vllm_config: Any, index: Index) -> None:
    bench = batch(vllm_config, index, {str(i): [C, B if i == 5 else C, C] for i in range(10)})
    for _ in range(3):
        bench.step()
    assert bench.finish_reason("5") == "error"
    for i in range(10):
        assert i == 5 or (bench.tokens_of(str(i)) == [C] * 3 and bench.finish_reason(str(i)) is None)


def test_stop_tokens_are_taken(vllm_config: Any, index: Index, one_by_one: list[int]) -> None:
    bench = Bench(vllm_config)
    for i in range(10):
        bench.add(str(i), 3, grammar(index, stops=(5,)), max_tokens=12, stop_token_ids=[5])
        bench.says[str(i)] = [C, C, C, C, 5]
    run_out(bench, map(str, range(10)))
    assert one_by_one == [5] * 10
    assert {bench.finish_reason(str(i)) for i in range(10)} == {"stop"}


def test_an_error_ends_the_requests_not_the_engine(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = batch(vllm_config, index, {str(i): [C, C, C] for i in range(10)})
    bench.add("free", 3)
    bench.step()

    def breaks(*_: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(draft_rows, "advance_along", breaks)
    bench.step()
    assert {bench.finish_reason(str(i)) for i in range(10)} == {"error"}
    assert bench.tokens_of("free") == [7, 7] and bench.finish_reason("free") is None


class InFlight(Bench):
    """Asynchronous scheduling: a step is scheduled while the results of the step before are on their way."""

    def __init__(self, config: Any, blocks: int) -> None:
        super().__init__(config, blocks)
        self.flight: list[tuple[Any, Any]] = []
        self.late = 0  # results of requests that were preempted in the meantime

    def step(self) -> dict[str, int]:
        """One step of ``EngineCore.step_with_batch_queue``."""
        scheduled = self.scheduler.schedule()
        if not scheduled.pending_structured_output_tokens:
            self.launch(scheduled)
        if len(self.flight) == 2 or scheduled.pending_structured_output_tokens:
            self.receive()
        if scheduled.pending_structured_output_tokens:
            self.launch(scheduled)
        return dict(scheduled.num_scheduled_tokens)

    def launch(self, scheduled: Any) -> None:
        names = list(scheduled.num_scheduled_tokens)
        said = [[] if (r := self.scheduler.requests[n]).is_prefill_chunk else [self.next_token(r)] for n in names]
        index = {name: i for i, name in enumerate(names)}
        self.flight.append((scheduled, ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=said)))

    def receive(self) -> None:
        scheduled, output = self.flight.pop(0)
        requests = self.scheduler.requests
        self.late += sum(1 for name in output.req_ids if (r := requests.get(name)) and r.num_stale_output_tokens)
        for client in self.scheduler.update_from_output(scheduled, output).values():
            for one in client.outputs:
                self.outputs.setdefault(one.request_id, []).append(one)

    def next_token(self, request: Any) -> int:
        """Any token that the grammar allows: by now it knows every token before."""
        if not request.use_structured_output:
            return 7
        own = request.structured_output_request.grammar
        allowed = sorted(token for token in own.guide.allowed_tokens() if token != EOS)
        return allowed[hash((int(request.request_id), request.num_output_tokens)) % len(allowed)]


@pytest.mark.parametrize("blocks", [200, 14])
def test_results_in_flight_when_their_request_is_preempted(
    vllm_config: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, one_by_one: list[int], blocks: int
) -> None:
    """Some results come late and count, others are dropped. vLLM decides which; no token is taken twice."""
    monkeypatch.setattr(vllm_config.scheduler_config, "async_scheduling", True)
    index = Index.from_regex("(ab|c|[0-9a-c]{2})*", vocabulary)
    said = []
    for least in (1, 1000):
        monkeypatch.setattr(batch_accept, "MIN_BATCH", least)
        one_by_one.clear()
        bench = InFlight(vllm_config, blocks)
        assert isinstance(bench.scheduler, AsyncScheduler) and bench.scheduler._batch._accepts_batches
        grammars = {str(i): grammar(index) for i in range(9)}
        for name, own in grammars.items():
            bench.add(name, 3, own, max_tokens=30)
        bench.add("9", 3, max_tokens=30)
        for step in range(400):
            bench.step()
            if step in (9, 10, 21):
                bench.scheduler.reset_prefix_cache(reset_running_requests=True)
            for name, own in grammars.items():
                request = bench.scheduler.requests.get(name)
                assert request is None or own.guide.tokens_taken == request.num_output_tokens
        assert bench.late > 10 and not bench.scheduler.requests
        for name in grammars:
            guide, tokens = index.guide(), bench.tokens_of(name)
            assert len(tokens) == 30 and all(guide.advance(token) for token in tokens)
        assert (len(one_by_one) < 9 * 30 / 2) == (least == 1)
        said.append({name: bench.tokens_of(name) for name in bench.outputs})
    assert said[0] == said[1]
