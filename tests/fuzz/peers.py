"""Verdicts of llguidance and xgrammar, if installed, compared with those of an independent judge.

Differences are printed; they are not findings. The peers run in a fork, since some specifications make them crash or
take minutes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import adapters
from benchmarks.adapters.base import Engine, Options, Refused, Spec
from benchmarks.tokens import Tokens, byte_alphabet, load
from benchmarks.walk import allowed
from tests.forked import forked

NAMES = [name for name in ("llguidance", "xgrammar") if importlib.util.find_spec(name)]
CPU_S = 5.0


@cache
def tokens() -> Tokens:
    """A token for each byte, and an end token."""
    vocabulary = {**byte_alphabet(), "</s>": 256}
    end = {"id": 256, "content": "</s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tree = {
        "version": "1.0", "added_tokens": [end | {"normalized": False}], "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(tree))
        return load(path)


@cache
def engine(name: str) -> Engine:
    return adapters.load(name, tokens(), Options())


def verdicts(name: str, kind: str, specification: Any, texts: list[str]) -> list[bool] | None:
    """Whether the peer accepts each of ``texts``; None if it refuses the specification."""
    try:
        compiled = engine(name).compile(Spec("", kind, specification))
    except Refused:
        return None
    out = []
    for text in texts:
        matcher = compiled.matcher()
        taken = all(matcher.advance(byte) for byte in text.encode())
        if taken:
            matcher.fill()
        out.append(taken and allowed(matcher.bits, tokens().eos))
    return out


def compare(kind: str, specification: Any, judged: dict[str, bool]) -> None:
    """Print the texts on which a peer and the judge differ. For a schema, print only what a peer wrongly allows, since
    both peers prescribe an order of keys."""
    for name in NAMES:
        engine(name)
        found = forked(lambda name=name: verdicts(name, kind, specification, list(judged)), CPU_S, 4 * CPU_S)
        for text, verdict in zip(judged, found or [], strict=False):
            if verdict != judged[text] and (verdict or kind != "json_schema"):
                says = "allows" if verdict else "has not"
                print(f"peer {name} {says} {text!r} of {json.dumps(specification)[:300]}", file=sys.stderr, flush=True)
                break


def compare_grammars(grammar: str, judged: dict[str, bool]) -> None:
    """Print a text on which all peers that accept the grammar disagree with the judge. (The usual cause is the white
    space of JSON: dotllm allows what formatters write.)"""
    from tests.languages import grammar_peers
    from tests.languages.grammar_cases import Case

    grammar_peers.prepare()
    case = Case("", "ebnf" if "::=" in grammar else "lark", grammar, (), ())

    def ask() -> list[list[bool]]:
        found = []
        for peer in grammar_peers.PEERS.values():
            with contextlib.suppress(grammar_peers.Refused):
                verdict = peer(case)
                found.append([verdict(text) for text in judged])
        return found

    found = forked(ask, CPU_S, 4 * CPU_S) or []
    for number, (text, ours) in enumerate(judged.items()):
        if len(found) >= 2 and all(verdicts[number] != ours for verdicts in found):
            says = "have not" if ours else "allow"
            print(f"peers {says} {text!r} of {json.dumps(grammar)[:300]}", file=sys.stderr, flush=True)
            return
