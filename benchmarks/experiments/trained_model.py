"""A model that writes JSON, trained for some minutes on text made on the spot: of a million parameters on a CPU, or of
the shape of a given model where there is a GPU.

Models with random weights spell forced text at random, so what `lossless` coalescence accepts can only be measured with
a model that has learnt a spelling. This one has seen objects of random schemas (`texts`): key names of one to four
words in snake case, numbers, enums, strings, nesting, in compact JSON. Prompts say nothing about the schema, as little
as those of `dotllm bench-structured` do; which keys come is left to the masks.

    python -m benchmarks.experiments.trained_model FOLDER [--steps N]
    python -m benchmarks.experiments.trained_model FOLDER --like MODEL --batch 64 --length 256 --rate 6e-4 --steps 300
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
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

    def answer(self) -> str:
        """What the assistant says."""
        return json.dumps(self.object(), separators=(",", ":"))


def chats(tok: Any, seed: int) -> Iterator[list[int]]:
    """The tokens of chats without end, in the layout of the tokenizer's template, up to the end of the answer."""
    schemas = Schemas(seed)
    while True:
        some = [(schemas.prompt(), schemas.answer()) for _ in range(64)]
        prompts = (tok.apply_chat_template([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True)
                   for p, _ in some)  # fmt: skip
        texts = [f"{prompt}{answer}{tok.eos_token}" for prompt, (_, answer) in zip(prompts, some, strict=True)]
        yield from tok(texts, add_special_tokens=False)["input_ids"]


def _tokenizer_texts() -> Iterator[str]:
    schemas = Schemas(1)
    yield from tokenizer.corpus()
    for _ in range(20_000):
        yield json.dumps(schemas.object(), separators=(",", ":"))


def small(folder: Path) -> Any:
    """The configuration of the small model; its tokenizer is trained into ``folder``."""
    from transformers import AutoTokenizer, LlamaConfig

    tokenizer.save(folder, VOCABULARY_SIZE, _tokenizer_texts())
    tok = AutoTokenizer.from_pretrained(folder)
    return LlamaConfig(
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


def make(folder: Path, steps: int, like: Path | None, batch: int, length: int, rate: float) -> dict[str, Any]:
    """Train a model of ``steps`` batches into ``folder``. Returns what came of it."""
    import torch
    from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    if like is None:
        config = small(folder)
    else:
        config = AutoConfig.from_pretrained(like)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(like / name, folder)
    tok = AutoTokenizer.from_pretrained(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(config).float().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    source = chats(tok, 0)
    waiting: list[int] = []
    losses = torch.zeros(steps, device=device)
    started = time.monotonic()
    for step in range(steps):
        while len(waiting) < batch * length:
            waiting += next(source)
        tokens = torch.tensor(waiting[: batch * length], device=device).view(batch, length)
        del waiting[: batch * length]
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(input_ids=tokens, labels=tokens).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses[step] = loss.detach()
        if sys.stderr.isatty() or step % 50 == 0:
            print(f"step {step}: loss {float(losses[max(0, step - 49) : step + 1].mean()):.3f}", file=sys.stderr)
    model.to(torch.bfloat16).save_pretrained(folder)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": steps,
        "tokens": steps * batch * length,
        "loss": round(float(losses[-50:].mean()), 3),
        "seconds": round(time.monotonic() - started),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--like", type=Path, help="a model's folder: its configuration and tokenizer are taken")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens")
    parser.add_argument("--rate", type=float, default=RATE)
    print(json.dumps(make(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
