"""The error for a misspelt name suggests a known name that is close, and none if the name is another word."""

from __future__ import annotations

import random

import pytest

from dotllm.cli.explain import CODES
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS
from dotllm.languages.json_schema.strings.formats.registry import FORMATS
from dotllm.suggestions import closest
from dotllm.vllm_plugin.specification import OURS

FLAGS = ["--dotllm-coalescence", "--dotllm-whitespace", "--dotllm-property-order", "--tokenizer"]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("cuid2", FORMATS), ("cuid", FORMATS), ("--dotllm-nonsense", FLAGS), ("--dotllm-foo", FLAGS),
        ("dotllm_foo", OURS), ("dotllm_bar", OURS), ("dotllm_friend", OURS), ("dotllm_nonsense", OURS),
        ("ksuid", FORMATS), ("colour", FORMATS), ("frequency", FORMATS),
    ],
)  # fmt: skip
def test_another_word_is_no_misspelling(name: str, known: list[str]) -> None:
    assert closest(name, known) is None


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("dotllm_order", OURS, "dotllm_property_order"), ("--dotllm-whitspace", FLAGS, "--dotllm-whitespace"),
        ("--dotllm-coalescense", FLAGS, "--dotllm-coalescence"), ("--tokeniser", FLAGS, "--tokenizer"),
        ("attern", ["pattern"], "pattern"), ("ytpe", ["type"], "type"), ("Date-Time", FORMATS, "date-time"),
        ("dotllm_finsih", OURS, "dotllm_finish"), ("ppattern", ["pattern"], "pattern"),
    ],
)  # fmt: skip
def test_a_misspelling_is_told_what_is_meant(name: str, known: list[str], meant: str) -> None:
    assert closest(name, known) == meant


def test_one_slip_in_any_known_name_is_understood() -> None:
    chance = random.Random(5)
    for known in (sorted({*ASSERTIONS[max(ASSERTIONS)]}), sorted(OURS), sorted(CODES)):
        for word in (word for word in known if len(word) >= 7):
            for _ in range(10):
                at = chance.randrange(1, len(word) - 1)
                slip = chance.choice([word[:at] + word[at + 1 :], word[:at] + word[at + 1] + word[at] + word[at + 2 :]])
                assert slip in known or closest(slip, known) is not None, (slip, word)
