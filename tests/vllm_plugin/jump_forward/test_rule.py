"""The steps in which forced text is entered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dotllm.vllm_plugin.extra.jump_forward import Offer, Rule


def rule(graph_tokens: int | None, decode: str = "FULL", mixed: str = "PIECEWISE", hidden_size: int = 4096) -> Rule:
    mode = SimpleNamespace(decode_mode=lambda: decode, mixed_mode=lambda: mixed)
    return Rule(
        SimpleNamespace(max_cudagraph_capture_size=graph_tokens, cudagraph_mode=mode),
        SimpleNamespace(get_hidden_size=lambda: hidden_size),
    )


def found(*lengths: int) -> list[Offer]:
    """Forced texts of these lengths; the first token of each is in flight."""
    return [Offer(position, None, [7] * length, length - 1) for position, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("running", "lengths", "enters"),
    [
        (1, (3,), False),  # saves two steps, but the step that runs it takes up to twice as long
        (1, (4,), True),
        (32, (9,) * 8, False),
        (32, (9,) * 9, True),  # 72 steps
        (256, (100, 100, 100, 100, 100), False),
        (256, (100, 100, 100, 100, 118), True),
    ],
)
def test_together_they_save_more_steps_than_a_longer_one_costs(
    running: int, lengths: tuple[int, ...], enters: bool
) -> None:
    those = found(*lengths)
    assert rule(1024)(those, running, prompt_comes=False) == (those if enters else ())
    assert rule(1024)(those, running, prompt_comes=True) == those, "the step is a long one anyway"


def test_the_steps_of_a_narrow_model_are_short() -> None:
    those = found(4)
    assert rule(512)(those, 1, prompt_comes=False) == those
    assert rule(512, hidden_size=896)(those, 1, prompt_comes=False) == ()


@pytest.mark.parametrize(("running", "may"), [(1, True), (170, True), (171, False), (512, False), (513, True)])
def test_nobody_looks_where_the_largest_graph_has_no_room_for_enough(running: int, may: bool) -> None:
    assert rule(512).may_pay(running, prompt_comes=False) == may
    assert rule(512).may_pay(running, prompt_comes=True) == (running != 512)
    assert rule(0).may_pay(running, prompt_comes=False)


@pytest.mark.parametrize(
    "one", [rule(512, "PIECEWISE"), rule(512, "FULL", "FULL"), rule(0), rule(None, "NONE", "NONE")]
)
def test_where_no_step_is_slower_all_are_entered(one: Rule) -> None:
    those = found(2, 3)
    assert one(those, 32, prompt_comes=False) == those


def test_no_step_outgrows_the_largest_graph() -> None:
    those = found(10, 40, 20, 5)
    entered = rule(64)(those, 8, prompt_comes=True)
    assert [len(one.tokens) for one in entered] == [40, 10, 5], "the longest first: 39 + 9 + 4 further tokens of 56"
    assert sum(len(one.tokens) - 1 for one in entered) <= 64 - 8
    assert rule(64)(those, 100, prompt_comes=True) == those, "it has outgrown it anyway"
