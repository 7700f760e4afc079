"""Neither entering text nor speculation changes a probability: samples at temperature 1 are tested against the law of
decoding under the masks, either the canonical masks or all.

The language is finite and the vocabulary small. So the model alone (transformers, without vLLM and our engine) gives
the probability of every answer as a sequence of tokens: at each place, softmax over the tokens that continue some
allowed text, or the one canonical token if the text is forced. The tokenizer says which token is canonical.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.serve import scripts

pytestmark = pytest.mark.serve

TEXTS = tuple(f"{state}{further}=measured value;" for state in ("on", "off") for further in "abcdefgh")
REGEX = "(on|off)[a-h]=measured value;"
FORCED = "=measured value;"
PROMPT = "Hello"
DRAFTED = tuple(f"{state}{a}{b}" for state in ("on", "off") for a in "abcd" for b in "abcd")
DRAFTED_REGEX = "(on|off)[a-d]{2}"
DRAFTING_PROMPT = "Hello onab offcd onac offbb onad"
SAMPLES, DRAFTED_SAMPLES = 3000, 1500  # enough to notice the other temperature that the tests try
LOGIT_SPREAD = 6  # the weights are random and their logits similar: this makes some tokens likelier than others

Law = dict[tuple[int, ...], float]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaForCausalLM

    from dotllm.demo import model, tokenizer

    folder = tmp_path_factory.mktemp("law") / "model"
    # (trained on separate pieces: no token spans free and forced text, which would change the canonical spelling)
    tokenizer.save(folder, 256 + 3 + 14, ["on", "off", "of", "value", FORCED, "sured", "valu"] * 5)
    model.save_weights(folder)
    network = LlamaForCausalLM.from_pretrained(folder).float()
    network.lm_head.weight.data *= LOGIT_SPREAD
    network.save_pretrained(folder)
    return folder


def law(
    model: Path, temperature: float = 1.0, *, texts: tuple[str, ...] = TEXTS, forced: str = FORCED, said: str = PROMPT
) -> Law:
    """The probability of every answer, without EOS. ``forced``: the end of all ``texts``, in canonical tokens."""
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    tok, network = AutoTokenizer.from_pretrained(model), LlamaForCausalLM.from_pretrained(model).float().eval()
    pieces = {token: tok.decode([token]) for token in range(len(tok)) if token not in tok.all_special_ids}
    canonical = tok.encode(forced, add_special_tokens=False)
    assert "".join(pieces[token] for token in canonical) == forced
    prompt = tok(said)["input_ids"]
    found: Law = {}
    frontier: Law = {(): 1.0}
    while frontier:
        with torch.no_grad():
            logits = network(torch.tensor([[*prompt, *answer] for answer in frontier])).logits[:, -1].double()
        longer: Law = {}
        for (answer, probability), row in zip(frontier.items(), logits, strict=True):
            text = "".join(pieces[token] for token in answer)
            if any(full == text + forced for full in texts):  # all the rest is forced, and then EOS
                found[(*answer, *canonical)] = found.get((*answer, *canonical), 0) + probability
                continue
            if text in texts:
                found[answer] = found.get(answer, 0) + probability
                continue
            allowed = [t for t, piece in pieces.items() if any(full.startswith(text + piece) for full in texts)]
            shares = torch.softmax(row[allowed] / temperature, 0).tolist()
            longer |= {(*answer, token): probability * share for token, share in zip(allowed, shares, strict=True)}
        frontier = longer
    return found


def p_value(counts: Counter[tuple[int, ...]], expected: Law) -> float:
    """The p-value of Pearson's test; answers expected fewer than five times form one class."""
    import torch

    total = sum(counts.values())
    assert set(counts) <= set(expected), "an answer that is not in the language"
    classes = [(counts[answer], total * p) for answer, p in expected.items() if total * p >= 5]
    rare = total - sum(seen for seen, _ in classes), total - sum(wanted for _, wanted in classes)
    if rare[1] >= 5:
        classes.append(rare)
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in classes)
    freedom = torch.tensor((len(classes) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))


def sampled(model: Path, regex: str, said: str, samples: int, speculation: Any = None, coalescence: str = "off") -> Any:
    from transformers import AutoTokenizer

    prompt = [str(token) for token in AutoTokenizer.from_pretrained(model)(said)["input_ids"]]
    arguments = (model, regex, json.dumps(speculation), samples, *prompt)
    environment = {"DOTLLM_COALESCENCE": coalescence}
    found, _ = scripts.run("coalescence_law_script.py", *arguments, environment=environment)
    return found


def test_the_law_is_that_of_decoding_under_the_canonical_masks(model: Path) -> None:
    expected, found = law(model), sampled(model, REGEX, PROMPT, SAMPLES, coalescence="canonical")
    assert sum(expected.values()) == pytest.approx(1, abs=1e-9)
    counts = Counter(tuple(ids[:-1]) for ids in found["ids"])
    assert len(counts) >= len(TEXTS)
    assert p_value(counts, expected) > 1e-3
    assert p_value(counts, law(model, temperature=1.2)) < 1e-3, "the test would not notice a change of the law"
    assert found["entered"] > SAMPLES, "nothing was entered"


def test_speculation_keeps_the_law_of_decoding_under_the_masks(model: Path) -> None:
    """Some drafts are kept, some are not likely enough, and some are not allowed."""
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "prompt_lookup_max": 2}
    found = sampled(model, DRAFTED_REGEX, DRAFTING_PROMPT, DRAFTED_SAMPLES, speculation)
    expected, hotter = (law(model, t, texts=DRAFTED, forced="", said=DRAFTING_PROMPT) for t in (1.0, 1.2))
    assert sum(expected.values()) == pytest.approx(1, abs=1e-9)
    counts = Counter(tuple(ids[:-1]) for ids in found["ids"])
    assert p_value(counts, expected) > 1e-3
    assert p_value(counts, hotter) < 1e-3, "the test would not notice a change of the law"
    assert found["kept"] > DRAFTED_SAMPLES / 20
