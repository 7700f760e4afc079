"""Texts to try on a grammar: walks that the oracle allows, and mutations of texts that it accepts."""

from __future__ import annotations

import random

from dotllm.grammar import Grammar
from tests.grammar.reference import Recogniser

LONGEST_WALK = 40


def walk(grammar: Grammar, rng: random.Random) -> str | None:
    """A random text of the grammar, or None if the walk found no way to its end."""
    recogniser = Recogniser(grammar)
    data = bytearray()
    goal = rng.randint(0, LONGEST_WALK)
    while len(data) < goal:
        allowed = sorted(recogniser.allowed_bytes())
        if not allowed:
            break
        plain = [byte for byte in allowed if 0x20 < byte < 0x7F]
        byte = rng.choice(plain if plain and rng.random() < 0.9 else allowed)
        recogniser.feed(byte)
        data.append(byte)
    rest = _way_out(recogniser)
    return None if rest is None else (data + rest).decode()


def _way_out(recogniser: Recogniser) -> bytes | None:
    """A short end of the text, by a narrow breadth-first search over signs (they close things) and a few letters."""
    level = [(b"", recogniser)]
    for _ in range(25):
        for rest, state in level:
            if state.can_finish:
                return rest
        following = []
        for rest, state in level:
            allowed = sorted(state.allowed_bytes())
            signs = [byte for byte in allowed if byte < 0x7F and not chr(byte).isalnum()]
            letters = [byte for byte in allowed if byte not in signs]
            for byte in (*signs[-8:], *letters[:2], *letters[-1:]):
                other = state.copy()
                other.feed(byte)
                following.append((rest + bytes((byte,)), other))
        level = following[:20]
    return None


def mutations(text: str, alphabet: str, rng: random.Random) -> list[str]:
    """Texts that are one edit away."""
    i = rng.randint(0, len(text))
    found = [text[:i] + rng.choice(alphabet) + text[i:]]
    if text:
        i = rng.randrange(len(text))
        found += [text[:i] + text[i + 1 :], text[:i] + rng.choice(alphabet) + text[i + 1 :], text[:i]]
        found.append(text[: i + 1] + text[i:])
    return found


def texts_for(grammar: Grammar, yes: list[str], no: list[str], seed: int, walks: int = 0) -> list[str]:
    """The given texts, walks, and mutations of the texts that are in the language."""
    rng = random.Random(seed)
    walked = [text for text in (walk(grammar, rng) for _ in range(walks)) if text is not None]
    alphabet = "".join(sorted({char for text in (*yes, *no) for char in text})) or "a"
    mutated = [mutant for text in (*yes, *walked) for mutant in mutations(text, alphabet, rng)]
    return list(dict.fromkeys([*yes, *no, *walked, *mutated]))
