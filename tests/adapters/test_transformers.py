"""``model.generate`` of a tiny random model under an index: with every search, each row is a text of the index."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dotllm import Index, Vocabulary  # noqa: E402
from dotllm.transformers import StructuredLogitsProcessor  # noqa: E402

PATTERN = "[a-c]{2,6}(-[0-9]{1,3})?"
PROMPTS = ["a", "a much longer prompt than the other one: "]


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_model, padding_side="left")


@pytest.fixture(scope="module")
def model(demo_model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(demo_model)


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Any, model: Any) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer, size=model.config.vocab_size)


def generate(model: Any, tokenizer: Any, processor: Any, prompts: list[str] = PROMPTS, **options: Any) -> list[str]:
    torch.manual_seed(0)
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=40, logits_processor=[processor], **options)
    texts: list[str] = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


SEARCHES = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "three samples": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 4, "num_return_sequences": 3},
    "sampled beams": {"num_beams": 3, "do_sample": True},
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_every_search(model: Any, tokenizer: Any, vocabulary: Vocabulary, search: Any) -> None:
    texts = generate(model, tokenizer, StructuredLogitsProcessor(Index.from_regex(PATTERN, vocabulary)), **search)
    assert len(texts) == 2 * search.get("num_return_sequences", 1)
    for text in texts:
        assert re.fullmatch(PATTERN, text), text


def test_json(model: Any, tokenizer: Any, vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, "x"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    index = Index.from_json_schema(schema, vocabulary, any_whitespace=False)
    for text in generate(model, tokenizer, StructuredLogitsProcessor(index), do_sample=True, num_return_sequences=4):
        assert json.loads(text) in ({"a": 1}, {"a": "x"})


@pytest.mark.parametrize("search", [{"do_sample": True, "num_return_sequences": 2}, {"num_beams": 3}])
def test_an_index_for_each_prompt(model: Any, tokenizer: Any, vocabulary: Vocabulary, search: Any) -> None:
    indexes = [Index.from_regex(pattern, vocabulary) for pattern in ("[a-c]{3,9}", "[0-9]{3,9}")]
    texts = generate(model, tokenizer, StructuredLogitsProcessor(indexes), **search)
    half = len(texts) // 2
    assert all(text.isalpha() for text in texts[:half]) and all(text.isdigit() for text in texts[half:])


def test_a_processor_serves_one_generation(model: Any, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Anything that looks like a new generation is an error, never a text without a constraint."""
    processor = StructuredLogitsProcessor(Index.from_regex(PATTERN, vocabulary))
    for prompts in (["x"], ["x x"], ["x x x"]):  # the next one is a token longer: it could be a continuation
        for text in generate(model, tokenizer, processor, prompts, do_sample=True):
            assert re.fullmatch(PATTERN, text), text
        for again in (["x x"], ["y"], PROMPTS):
            with pytest.raises(ValueError, match="reset"):
                generate(model, tokenizer, processor, again)
        processor.reset()


def test_assisted_generation_is_refused(model: Any, tokenizer: Any, vocabulary: Vocabulary) -> None:
    processor = StructuredLogitsProcessor(Index.from_regex("(abc ){3,9}end", vocabulary))
    with pytest.raises(ValueError, match="rows"):
        generate(model, tokenizer, processor, ["abc abc abc abc end"], prompt_lookup_num_tokens=4)


def test_the_mask_is_the_engines(vocabulary: Vocabulary) -> None:
    index = Index.from_regex(PATTERN, vocabulary)
    scores = torch.zeros(1, vocabulary.size + 7)  # a model may have more outputs than tokens
    masked = StructuredLogitsProcessor(index)(torch.tensor([[1, 2, 3]]), scores)
    assert torch.nonzero(masked[0] == 0).flatten().tolist() == list(index.guide().allowed_tokens())


def test_more_beams_than_texts(model: Any, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """The best beam is a text; beams of probability zero do not end the generation."""
    index = Index.from_choice(["yes", "no"], vocabulary)
    assert set(generate(model, tokenizer, StructuredLogitsProcessor(index), num_beams=5)) <= {"yes", "no"}


def test_what_does_not_fit_is_named(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("a", vocabulary)
    with pytest.raises(ValueError, match="tokens"):
        StructuredLogitsProcessor(index)(torch.tensor([[1]]), torch.zeros(1, 5))
    with pytest.raises(ValueError, match=r"3 rows.*2 prompts"):
        StructuredLogitsProcessor([index, index])(torch.ones(3, 1, dtype=torch.long), torch.zeros(3, vocabulary.size))
    with pytest.raises(ValueError, match="vocabulary"):
        StructuredLogitsProcessor([])
    fitting = torch.zeros(1, vocabulary.size)
    for rows, scores in (
        (torch.zeros(1, 3), fitting),
        (torch.zeros(3, dtype=torch.long), fitting),
        (torch.zeros(2, 3, dtype=torch.long), fitting),
        (torch.zeros(1, 3, dtype=torch.long), fitting[0]),
    ):
        with pytest.raises(ValueError, match="expected input_ids"):
            StructuredLogitsProcessor(Index.from_regex("a", vocabulary))(rows, scores)  # type: ignore[arg-type]


def test_the_example(demo_model: Path) -> None:
    path = Path(__file__).parents[2] / "examples" / "transformers_generate.py"
    spec = importlib.util.spec_from_file_location("example", path)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert len(example.main(str(demo_model))) == 6
