"""Run by `test_soundness` in a process of its own: damages saved indexes, number by number, and walks those that load.

    python -m tests.index.walk_damaged FIRST_SEED ROUNDS

The checksums are corrected, as an attacker would do. Prints how many files were refused and how many were walked.
A walk may lead to any text or to a named error, but to nothing else, and never to a crash.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import zlib
from collections.abc import Iterator

import numpy as np

from dotllm import Index, Vocabulary
from dotllm.automata.machine.layout import H_LIMIT
from dotllm.errors import EngineFault, SpecError
from dotllm.index import index as index_module
from dotllm.index.batch import mask_rows

HEAD = 28  # bytes before the header
MOST_INTS = 1 << 20  # of a machine: a damaged one would take seconds to reach the usual limit
STEPS = 25

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "tags": {"type": "array", "items": {"enum": ["a", "bb", "true", 1, None]}, "minItems": 2, "maxItems": 70},
        "code": {"type": "string", "pattern": "^([a-f]{2,30}-)+[^x]*$"},
        "next": {"$ref": "#"},
        "other": {"type": "object", "additionalProperties": {"type": "number"}},
    },
    "required": ["name", "code"],
}
GRAMMAR = """
start: (sum | "<tool>" list | <tool>)
sum: sum "+" product | product
product: product "*" atom | atom
atom: NUMBER | "(" sum ")" | NAME | pair pair
pair: "[" (sum ("," sum)*)? "]" | "[" NAME? "]"
list: "{" list* "}" | "{" "}" list
NAME: /[a-z_]\\w{0,30}/
NUMBER: /[0-9]+(\\.[0-9]{1,300})?/
"""


def vocabulary() -> Vocabulary:
    """Every byte, some words, a special token and an end token."""
    words = [b'{"', b'":', b'",', b"true", b"false", b"null", b"hello", b"lo", b"12", b"\xc3", b"\xa9", b"name", b"-ab"]
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)] + list(words)
    n = len(tokens)
    return Vocabulary.from_bytes([*tokens, None, None], eos_token_ids=[n], special_tokens={"<tool>": n + 1})


def indexes(of: Vocabulary) -> Iterator[Index]:
    """Indexes that contain every kind of node and of memo."""
    yield Index.from_json_schema(SCHEMA, of)
    yield Index.from_json_schema(SCHEMA, of, property_order="any")
    yield Index.from_json_schema({"type": "array", "items": {"enum": list(range(12))}, "uniqueItems": True}, of)
    yield Index.from_json_schema({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, of)
    yield Index.from_regex(r"((ab|c.){3,90}|\w+@[^ ]{1,500})*(x|é)?", of)
    yield Index.from_grammar(GRAMMAR, of)


def walk(index: Index, chance: random.Random) -> None:
    """Take tokens at random, and ask everything that can be asked on the way."""
    guide = index.guide()
    for _ in range(STEPS):
        if not guide.is_stateful:
            mask_rows([guide, guide.fork()])
        allowed = [int(token) for token in guide.allowed_tokens() if token < index.vocabulary.size]
        if not allowed or guide.is_finished:
            break
        guide.forced_bytes()
        if not guide.is_stateful:
            guide.mask_within(guide.tokens_to_finish + 2)
        if not guide.advance(chance.choice(allowed)):
            break
        _ = guide.can_finish


def damage(data: bytes, chance: random.Random) -> bytes:
    """The file with some of its numbers changed, and a correct checksum."""
    header_length = int.from_bytes(data[8:16], "little")
    header = data[HEAD : HEAD + header_length]
    numbers = np.frombuffer(data[HEAD + header_length :], np.int32).copy()
    lengths = json.loads(header)["lengths"]
    for _ in range(chance.choice((1, 1, 1, 2, 5, 40))):
        part = chance.randrange(len(lengths))  # small parts as often as large ones
        if not lengths[part]:
            continue
        at = sum(lengths[:part]) + chance.randrange(lengths[part])
        old = int(numbers[at])
        new = chance.choice(
            (
                old + chance.choice((-2, -1, 1, 2)),
                old ^ (1 << chance.randrange(32)),
                int(numbers[chance.randrange(len(numbers))]),
                chance.randrange(-4, 300),
                -1,
                0,
            )
        )
        numbers[at] = np.int64(new).astype(np.int32)
    body = header + numbers.tobytes()
    return data[: HEAD - 4] + zlib.crc32(body).to_bytes(4, "little") + body


def main(first: int, rounds: int) -> None:
    """The command line; see the module's docstring."""
    index_module.FUEL = 1 << 16
    of = vocabulary()
    files = []
    for index in indexes(of):
        for seed in range(4):
            walk(index, random.Random(seed))
        files.append(index.to_bytes())
        walk(Index.from_bytes(files[-1], of), random.Random(0))
    refused = walked = 0
    for seed in range(first, first + rounds):
        chance = random.Random(seed)
        data = damage(chance.choice(files), chance)
        print(seed, file=sys.stderr, flush=True)  # the last seed printed tells which one crashed
        try:
            index = Index.from_bytes(data, of)
        except ValueError:
            refused += 1
            continue
        index.mem[H_LIMIT] = MOST_INTS
        walked += 1
        for i in range(3):
            with contextlib.suppress(SpecError, EngineFault):
                walk(index, random.Random(i))
    print(refused, walked)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
