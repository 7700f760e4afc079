"""Hashes of what the engine makes of each specification in the corpus: a restructuring changes none of them.

    python -m tools.digest             # prints a line per specification
    python -m tools.digest --check     # fails, and names what differs, if a hash is not that of tools/digest.json
    python -m tools.digest --update    # after an intended change of behaviour

The hash covers the arrays of the grammar, the block of the automaton, and the bitmasks of 50 steps of a seeded walk,
over a vocabulary of all bytes and 2,000 made-up longer tokens. The hash of a refusal covers its class, keyword and
pointer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dotllm import Index, SpecError, Vocabulary
from dotllm.automata.lowering import lower
from dotllm.grammar.grammar import Grammar
from dotllm.grammar.transform import prepare

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "tests" / "corpus"
KNOWN = Path(__file__).with_name("digest.json")
STEPS = 50
_PARTS = (
    '{"',
    '": ',
    '", "',
    "the ",
    "name",
    "0",
    "12",
    "\n  ",
    "é",
    "日本",
    "}]",
    "true",
    "A",
    "_",
    "- ",
    "x" * 9,
    "\\u00",
)


def vocabulary() -> Vocabulary:
    """All single bytes, and longer tokens that cross the borders of keys, strings and code points."""
    draw = random.Random(0)
    made = {
        b"".join(draw.choice(_PARTS).encode() for _ in range(draw.randint(1, 4)))[: draw.randint(2, 12)]
        for _ in range(3000)
    }
    longer = sorted(token for token in made if len(token) > 1)[:2000]
    return Vocabulary.from_bytes(
        [*(bytes([byte]) for byte in range(256)), *longer, None], eos_token_ids=256 + len(longer)
    )


def specifications() -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """(Name, constructor of Index, its argument, options) for the whole corpus."""
    for row in json.loads((ROOT / "benchmarks" / "data" / "specs.json").read_text()):
        yield f"specs/{row['name']}", row["kind"], row["spec"], {}
    for path in sorted((CORPUS / "regex").glob("*.json")):
        data = json.loads(path.read_text())
        for number, case in enumerate(data["cases"] if isinstance(data, dict) else data):
            yield f"regex/{path.stem}/{number}", "regex", case["pattern"] if isinstance(case, dict) else case, {}
    for name in ("json_schema/verdicts", "unique_items"):
        for number, case in enumerate(json.loads((CORPUS / f"{name}.json").read_text())):
            yield f"{name}/{number}", "json_schema", case["schema"], {}
    for number, case in enumerate(json.loads((CORPUS / "json_schema" / "refused.json").read_text())):
        yield f"json_schema/refused/{number}", "json_schema", case["text"], {}
    for case in json.loads((CORPUS / "json_schema" / "keywords.json").read_text()):
        for order in ("declared", "any"):
            yield f"json_schema/{case['what']}/{order}", "json_schema", case["schema"], {"property_order": order}
    for case in json.loads((CORPUS / "structural_tags.json").read_text()):
        yield f"structural_tags/{case['what']}", "structural_tag", case["tag"], {}
    for number, case in enumerate(json.loads((CORPUS / "options.json").read_text())):
        yield f"options/{number}", case["kind"], case.get("spec"), case["options"]
    for path in sorted((CORPUS / "grammars").glob("*.txt")):
        for case in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
            title, _, rest = case.partition("\n")
            yield f"grammars/{path.stem}/{title}", "grammar", rest.partition("\n--- yes")[0], {}


def _place(error: SpecError) -> str:
    """The place of the fault; "/" for a whole value."""
    place = error.place
    return "" if error.location is None else f"/{place}" if error.pointer == "" and error.span is None else place


def digest(kind: str, given: Any, over: Vocabulary, options: dict[str, Any]) -> str:
    """The hexadecimal digest of one specification with these ``options`` of its constructor."""
    found = hashlib.sha256()
    compiled: list[Grammar] = []
    original = Index.from_grammar_object.__func__  # type: ignore[attr-defined]

    class Watched(Index):
        """An Index whose grammar is kept."""

        @classmethod
        def from_grammar_object(cls, grammar: Grammar, vocabulary: Vocabulary, **limits: Any) -> Index:
            compiled.append(grammar)
            index: Index = original(Index, grammar, vocabulary, **limits)
            return index

    try:
        arguments = (over,) if kind == "json_object" else (given, over)
        guide = getattr(Watched, f"from_{kind}")(*arguments, **options).guide()
    except SpecError as error:
        found.update(f"{type(error).__name__.removesuffix('Error')} {error.keyword} {_place(error)}".encode())
        return found.hexdigest()[:16]
    for array in compiled[0].arrays():
        found.update(array.tobytes())
    nfa = lower(prepare(compiled[0]), np.ones(256, np.bool_))
    found.update(np.ascontiguousarray(nfa.block).tobytes())
    draw = random.Random(ascii(given))
    bitmask = np.zeros((1, -(-over.size // 32)), np.int32)
    for _ in range(STEPS):
        bitmask[:] = 0
        guide.write_mask(bitmask, 0)
        found.update(bitmask.tobytes())
        allowed = np.flatnonzero(np.unpackbits(bitmask.view(np.uint8), bitorder="little"))
        if not len(allowed) or guide.is_finished:
            break
        guide.advance(int(allowed[draw.randrange(len(allowed))]))
    return found.hexdigest()[:16]


def main() -> int:
    """Status 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true")
    group.add_argument("--update", action="store_true")
    arguments = parser.parse_args()
    over = vocabulary()
    found = {name: digest(kind, given, over, options) for name, kind, given, options in specifications()}
    if arguments.update:
        KNOWN.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n")
    elif arguments.check:
        known = json.loads(KNOWN.read_text())
        differs = sorted(name for name in {*known, *found} if known.get(name) != found.get(name))
        print(f"{len(found) - len(differs)} of {len(found)} as before")
        print(*(f"differs: {name}" for name in differs), sep="\n", file=sys.stderr)
        return int(bool(differs))
    else:
        print(*(f"{value}  {name}" for name, value in found.items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
