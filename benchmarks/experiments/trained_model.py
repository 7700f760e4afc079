"""A model of about a million parameters that writes JSON, trained for some minutes on a CPU on text made on the spot.

Models with random weights spell forced text at random, so what `lossless` coalescence accepts can only be measured with
a model that has learnt a spelling. This one has seen objects of random schemas (`texts`): key names of one to four
words in snake case, numbers, enums, strings, nesting, in compact JSON. Prompts say nothing about the schema, as little
as those of `dotllm bench-structured` do; which keys come is left to the masks.

    python -m benchmarks.experiments.trained_model FOLDER [--steps N]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dotllm.bench.client import PROMPT
from dotllm.bench.plan import WORDS as PROMPT_WORDS
from dotllm.demo import tokenizer

VOCABULARY_SIZE = 4096
HIDDEN, HEADS, LAYERS, INTERMEDIATE = 128, 4, 4, 384
LENGTH, BATCH, RATE = 160, 16, 2e-3

_WORDS = """
account action active address age agent amount answer area argument attempt author balance batch billing body
booking brand budget building calendar call campaign cancelled capacity category channel choice city class client
code colour comment company condition confirmation consent contact contract count country create created current
customer date day delivery department description detail device direction discount distance document duration email
employee enabled end error estimate event expected field file filter first flag folder forecast format from function
gender get given group header height history hour hourly identifier image include index information input invitation
invitations invoice item key label language last latitude length level limit line list location log longitude
machine manager marketing maximum member message method minimum minutes mode model month name network next note
number object offer office option order output owner page parent parking partner path payment percent period person
phone place plan port position postcode preferred price priority product profile project property quantity query
question rate rating reason record reference region report request required result review role room row sample
schedule score season seat section select send sender sensor series service session shipping size source speed stage
start state status step stock store street subject subscription summary suspended tag target task team telephone
temperature text thread ticket time title token topic total track transaction travel type unit update updated user
value vehicle vendor version view volume warehouse weather weight width window work year zone
"""
WORDS = _WORDS.split()


class Schemas:
    """Random objects, as instances of random closed schemas would be."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def name(self) -> str:
        """A key, or the value of an enum."""
        return "_".join(self.random.choice(WORDS) for _ in range(self.random.choice((1, 1, 2, 2, 2, 3, 3, 4))))

    def value(self, depth: int) -> Any:
        """A value of any kind."""
        kind = self.random.randrange(12 if depth else 9)
        if kind < 2:
            return self.random.randrange(10 ** self.random.randint(1, 5))
        if kind == 2:
            return self.random.random() < 0.5
        if kind < 5:
            return self.name()
        if kind == 5:
            return "".join(self.random.choice("0123456789-:#ABCDEFabcdef") for _ in range(self.random.randint(2, 10)))
        if kind < 9:
            return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, 4)))
        if kind == 9:
            return [self.random.randrange(10**4) for _ in range(self.random.randint(1, 6))]
        return self.object(depth - 1)

    def object(self, depth: int = 2) -> dict[str, Any]:
        """An object of two to six properties."""
        return {self.name(): self.value(depth) for _ in range(self.random.randint(2, 6))}

    def prompt(self) -> str:
        """A prompt as `dotllm bench-structured` sends it, or plain English."""
        words = " ".join(self.random.choice(PROMPT_WORDS) for _ in range(self.random.choice((3, 8, 40))))
        return words if self.random.random() < 0.8 else PROMPT

    def text(self) -> str:
        """One chat, in the layout of the demo's template."""
        answer = json.dumps(self.object(), separators=(",", ":"))
        start, end = tokenizer.TURN_START, tokenizer.TURN_END
        return f"{start}user\n{self.prompt()}{end}\n{start}assistant\n{answer}{end}\n"


def texts(seed: int) -> Iterator[str]:
    """Chats without end."""
    schemas = Schemas(seed)
    while True:
        yield schemas.text()


def _tokenizer_texts() -> Iterator[str]:
    schemas = Schemas(1)
    yield from tokenizer.corpus()
    for _ in range(20_000):
        yield json.dumps(schemas.object(), separators=(",", ":"))


def make(folder: Path, steps: int) -> dict[str, Any]:
    """Train a model of ``steps`` batches into ``folder``. Returns what came of it."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer.save(folder, VOCABULARY_SIZE, _tokenizer_texts())
    tok = AutoTokenizer.from_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(tok),
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    source = texts(0)
    waiting: list[int] = []
    losses: list[float] = []
    started = time.monotonic()
    for step in range(steps):
        while len(waiting) < BATCH * LENGTH:
            waiting += tok(next(source))["input_ids"]
        batch = torch.tensor(waiting[: BATCH * LENGTH]).view(BATCH, LENGTH)
        del waiting[: BATCH * LENGTH]
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(float(loss))
        if sys.stderr.isatty() or step % 50 == 0:
            print(f"step {step}: loss {sum(losses[-50:]) / len(losses[-50:]):.3f}", file=sys.stderr)
    model.to(torch.bfloat16).save_pretrained(folder)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": steps,
        "tokens": steps * BATCH * LENGTH,
        "loss": round(sum(losses[-50:]) / len(losses[-50:]), 3),
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=900)
    options = parser.parse_args()
    print(json.dumps(make(options.folder, options.steps)))


if __name__ == "__main__":
    main()
