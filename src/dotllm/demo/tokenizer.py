"""A real byte-level BPE tokenizer, trained on the spot on text that every Python installation has.

It works as GPT-2's does (https://cdn.openai.com/better-language-models/language_models.pdf, §2.2), and has special
tokens and a chat template. So it confronts the engine with what a served model's tokenizer has: tokens across word and
JSON boundaries, tokens that hold parts of a code point, special tokens without text.
"""

from __future__ import annotations

import json
import pydoc_data.topics
from collections.abc import Iterable, Iterator
from pathlib import Path

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def corpus() -> Iterator[str]:
    """English and code (Python's own help texts), JSON in several layouts, and some text beyond ASCII."""
    yield from pydoc_data.topics.topics.values()
    names = sorted(pydoc_data.topics.topics)
    for number, name in enumerate(names):
        record = {"id": number, "name": name, "tags": names[number : number + 3], "price": number / 8, "active": True}
        yield json.dumps(record)
        yield json.dumps(record, indent=2)
        yield json.dumps([record, {"parent": record, "date": f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}"}])
        yield json.dumps(record, separators=(",", ":"))
    yield from (
        "façade naïve Übergröße señor ¿qué? — «déjà vu»",
        "Москва Ελλάδα",
        "日本語のテキスト 中文",
        "🙂🚀👩‍💻",
    ) * 20


def save(directory: Path, vocabulary_size: int, texts: Iterable[str] | None = None) -> None:
    """Train a tokenizer of at most ``vocabulary_size`` tokens on ``texts`` (default: `corpus`) and save it in
    ``directory`` in the form of transformers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus() if texts is None else texts, trainer)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    save_config(directory, eos_token=TURN_END, pad_token=END_OF_TEXT)


def save_config(directory: Path, **special_tokens: str) -> None:
    """Write ``tokenizer_config.json`` next to a ``tokenizer.json``: a fast tokenizer with the demo's chat template."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        **special_tokens,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
