"""Random walks under the mask: all must finish, and ``jsonschema`` must validate every text (issue 3, show 4).

A walk draws uniformly from the allowed tokens until EOS is drawn, under a limit on its tokens: the least that the
schema allows, one more, five more, twice as many, 64 (or the least, if that is more), and ``--patience``, which most
walks do not reach. A limit below the least must be refused.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import OrderedDict
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from benchmarks import maskbench, tokens
from dotllm import Guide, Index, TooFewTokensError, Vocabulary
from dotllm.errors import SpecError

RESULTS = Path(__file__).parent / "results" / "walks.json"
REMEMBERED_ROWS = 256
SPARE = 20


class DeadEnd(Exception):
    """A mask without a single token, or a text that did not end within its limit."""


class Walker:
    """Draws tokens from masks; the ids of the most recent rows are kept."""

    def __init__(self, vocabulary: tokens.Tokens, seed: int) -> None:
        self.tokens = vocabulary
        self.random = random.Random(seed)
        self.taken = 0
        self.limited = 0
        """Masks that a limit has changed."""
        self._ids: OrderedDict[tuple[int, int], NDArray[np.intp]] = OrderedDict()

    def _allowed(self, guide: Guide, left: int) -> NDArray[np.intp]:
        mask = guide.mask_within(left)
        if mask is not None:
            self.limited += 1
            return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        key = (id(guide.index.masks), guide.mask_row)
        ids = self._ids.get(key)
        if ids is None:
            bits = guide.index.masks[guide.mask_row].view(np.uint8)
            ids = self._ids[key] = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            if len(self._ids) > REMEMBERED_ROWS:
                self._ids.popitem(last=False)
        return ids

    def walk(self, index: Index, limit: int) -> bytes:
        """Draw one text. Raises `DeadEnd`."""
        guide, text = index.guide(), b""
        for left in range(limit, 0, -1):
            ids = self._allowed(guide, left)
            if not len(ids):
                raise DeadEnd(text[-200:].decode(errors="replace"))
            token = int(ids[self.random.randrange(len(ids))])
            self._take(guide, token, text)
            if token == self.tokens.eos:
                return text
            text += self.tokens.tokens[token] or b""
        raise DeadEnd(f"not ended within {limit} tokens: {text[-200:].decode(errors='replace')}")

    def _take(self, guide: Guide, token: int, text: bytes) -> None:
        row = guide.index.masks[guide.mask_row]
        if not row[token >> 5] >> (token & 31) & 1 or not guide.advance(token):
            raise DeadEnd(f"token {token} is not allowed after {text[-200:].decode(errors='replace')}")
        self.taken += 1


def parse(text: str) -> Any:
    """JSON as Python data; raises ValueError on anything RFC 8259 forbids, and for NaN and the like."""

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=constant, parse_float=_number)


def _number(text: str) -> float | int | Fraction:
    """A float; an int if the value is whole, so that ``type: integer`` is judged by value; a fraction if only the
    float would be whole. A value that is too large or too small for a float becomes a huge or a tiny number, not
    infinity or 0."""
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        mantissa, exponent = text.lower().split("e")
        value = Decimal(mantissa) * Decimal("1e-999" if exponent.startswith("-") else "1e999")
    sign = -1 if value < 0 else 1
    if value.adjusted() > 400 and value:
        return sign * int(Decimal("1e400"))
    whole, denominator = value.as_integer_ratio() if value.adjusted() > -400 else (0, 2)
    if denominator == 1:
        return whole
    nearest = float(value)
    if nearest and nearest.is_integer():
        return Fraction(value)
    return nearest or sign * 5e-324 * bool(value)


def validator(schema: Any) -> Any:
    """The validator of the schema's own dialect; 2020-12 if it names none. It reads patterns as ECMA-262 does, checks
    the formats that the standard library knows exactly, and ``multipleOf`` for numbers of any size."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind = jsonschema.validators.extend(kind, {"multipleOf": _multiple_of})
    return kind(_with_python_patterns(schema), format_checker=jsonschema.FormatChecker(["ipv4", "ipv6"]))


def _multiple_of(validator: Any, step: Any, instance: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """jsonschema's own check divides floats, and overflows if the number is too large for a float."""
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(step)):
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {step}")


def _with_python_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_python_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: value if key in ("const", "enum") else _with_python_patterns(value) for key, value in schema.items()}
    if isinstance(out.get("pattern"), str):
        out["pattern"] = python_pattern(out["pattern"])
    if isinstance(out.get("patternProperties"), dict):
        out["patternProperties"] = {python_pattern(key): value for key, value in out["patternProperties"].items()}
    return out


_CLASSES = {
    r"\d": "0-9",
    r"\s": r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
    r"\w": "0-9A-Z_a-z",
}


def python_pattern(pattern: str) -> str:
    """An ECMA-262 regular expression for Python, where the dot matches more line ends, ``$`` also matches before a
    final line feed, and ``\\d``, ``\\s`` and ``\\w`` hold other characters. (``[\\S]``, ``[\\D]`` and ``[\\W]``
    stay Python's.)"""
    out, in_class, i = "", False, 0
    while i < len(pattern):
        char = pattern[i : i + 2] if pattern[i] == "\\" else pattern[i]
        i += len(char)
        if in_class:
            in_class = char != "]"
            char = _CLASSES.get(char, char)
        elif char.lower() in _CLASSES:
            char = f"[{'^' * char[1].isupper()}{_CLASSES[char.lower()]}]"
        elif char == "[":
            in_class = True
        elif char == ".":
            char = r"[^\n\r\u2028\u2029]"
        elif char == "$":
            char = r"\Z"
        out += char
    return out


def refuses(index: Index, limit: int) -> bool:
    """Whether an index refuses a limit at the beginning."""
    try:
        index.guide().mask_within(limit)
    except TooFewTokensError as error:
        return error.needed == limit + 1
    return False


def run(rows: list[dict[str, Any]], walks: int, options: argparse.Namespace) -> dict[str, Any]:
    """``walks`` walks spread over the first ``options.schemas`` of ``rows`` that are not refused."""
    vocabulary = tokens.load()
    engine_vocabulary = Vocabulary.from_bytes(vocabulary.tokens, eos_token_ids=[vocabulary.eos])
    walker = Walker(vocabulary, options.seed)
    found: dict[str, Any] = {"schemas": 0, "walks": 0, "valid": 0, "refused": [], "faults": []}
    wanted = min(options.schemas, len(rows))
    needed: list[int] = []
    for row in track(rows, "schemas"):
        if found["schemas"] == wanted:
            break
        try:
            index = Index.from_json_schema(row["schema"], engine_vocabulary, additional_properties="open")
            least = index.guide().tokens_to_finish
        except SpecError as error:
            found["refused"].append({"schema": row["name"], "refusal": str(error)})
            continue
        judge = validator(row["schema"])
        found["schemas"] += 1
        needed.append(least)
        if not refuses(index, least - 1):
            found["faults"].append({"schema": row["name"], "fault": "not refused", "text": str(least - 1)})
        limits = (least, least + 1, least + 5, 2 * least, max(64, least), max(options.patience, least))
        for number in range(-(-walks // wanted)):
            limit = limits[number % len(limits)]
            found["walks"] += 1
            try:
                text = walker.walk(index, limit)
            except (DeadEnd, SpecError) as error:
                found["faults"].append({"schema": row["name"], "fault": type(error).__name__, "text": str(error)})
                continue
            try:
                judge.validate(parse(text.decode()))
                found["valid"] += 1
            except (ValueError, jsonschema.ValidationError) as error:
                fault = str(error).splitlines()[0][:300]
                shown = text[-300:].decode(errors="replace")
                found["faults"].append({"schema": row["name"], "fault": fault, "text": shown})
    found["tokens"], found["limited"] = walker.taken, walker.limited
    found["least"] = {f"p{p}": int(np.percentile(needed, p)) for p in (50, 90, 99, 100)}
    return found


def main() -> int:
    """Command line. Exit status 1 if a walk does not finish or a text is invalid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--walks", type=int, default=20_000)
    parser.add_argument("--schemas", type=int, default=500, help="a fixed random sample of MaskBench's")
    parser.add_argument("--patience", type=int, default=1_000, help="the largest limit")
    parser.add_argument("--only", default="", help="schemas whose names hold this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.set_int_max_str_digits(0)
    # Some spare schemas, which replace refused ones.
    rows = maskbench.read(maskbench.DATA, options.schemas + SPARE, options.only)
    found = run(rows, options.walks, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    for fault in found["faults"][:20]:
        print(fault)
    print({key: value for key, value in found.items() if key != "faults"}, f"faults: {len(found['faults'])}")
    return int(bool(found["faults"]))


if __name__ == "__main__":
    raise SystemExit(main())
