"""Random walks under the mask: all must finish, and ``jsonschema`` must validate every text (issue 3, show 4).

Half of the walks draw uniformly from the allowed tokens until EOS is drawn; the other half get a budget of tokens and
then take the shortest way out (`way_out`), as a server does that must close a document. A walk of the first kind on an
endlessly growing schema is sent the same way after ``--patience`` tokens; how many were is reported.
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
from benchmarks.way_out import NoWayOut, WayOut
from dotllm import Guide, Index, Vocabulary
from dotllm.errors import SpecError

RESULTS = Path(__file__).parent / "results" / "walks.json"
REMEMBERED_ROWS = 256
SPARE = 20


class DeadEnd(Exception):
    """A mask without a single token."""


class Walker:
    """Draws tokens from masks; the ids of the most recent rows are kept."""

    def __init__(self, vocabulary: tokens.Tokens, seed: int) -> None:
        self.tokens = vocabulary
        self.random = random.Random(seed)
        self.byte_token = {token[0]: i for i, token in enumerate(vocabulary.tokens) if token and len(token) == 1}
        self.taken = 0
        self._ids: OrderedDict[tuple[int, int], NDArray[np.intp]] = OrderedDict()

    def _allowed(self, guide: Guide) -> NDArray[np.intp]:
        key = (id(guide.index.masks), guide.mask_row)
        ids = self._ids.get(key)
        if ids is None:
            bits = guide.index.masks[guide.mask_row].view(np.uint8)
            ids = self._ids[key] = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            if len(self._ids) > REMEMBERED_ROWS:
                self._ids.popitem(last=False)
        return ids

    def walk(self, index: Index, way_out: WayOut, budget: int) -> tuple[bytes, bool]:
        """One text, and whether the way out was taken. Raises `DeadEnd`, `NoWayOut`."""
        guide, text = index.guide(), b""
        for _ in range(budget):
            ids = self._allowed(guide)
            if not len(ids):
                raise DeadEnd(text[-200:].decode(errors="replace"))
            token = int(ids[self.random.randrange(len(ids))])
            self._take(guide, token, text)
            if token == self.tokens.eos:
                return text, False
            text += self.tokens.tokens[token] or b""
        for byte in way_out.bytes_from(guide.config):
            self._take(guide, self.byte_token[byte], text)
            text += bytes([byte])
        self._take(guide, self.tokens.eos, text)
        return text, True

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
    """As a float; as an int where the value is whole, so that ``type: integer`` is judged by value, and as a fraction
    where only the float would be whole. What is too large or too small for a float is a number of that kind, not
    infinite and not 0."""
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
    """The validator of the schema's own dialect; 2020-12 where it names none. Patterns are read as ECMA-262 has them,
    formats where the standard library knows them exactly, ``multipleOf`` of numbers of any size."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    kind = jsonschema.validators.extend(kind, {"multipleOf": _multiple_of})
    return kind(_with_python_patterns(schema), format_checker=jsonschema.FormatChecker(["ipv4", "ipv6"]))


def _multiple_of(validator: Any, step: Any, instance: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """jsonschema's own divides floats, and overflows where the number is too large for one."""
    if validator.is_type(instance, "number") and Fraction(str(instance)) % Fraction(str(step)):
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {step}")


def _with_python_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_python_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _with_python_patterns(value) for key, value in schema.items()}
    if isinstance(out.get("pattern"), str):
        out["pattern"] = python_pattern(out["pattern"])
    if isinstance(out.get("patternProperties"), dict):
        out["patternProperties"] = {python_pattern(key): value for key, value in out["patternProperties"].items()}
    return out


def python_pattern(pattern: str) -> str:
    """A regular expression of ECMA-262 for Python, whose dot matches more line ends and whose ``$`` also matches before
    a last line feed."""
    out, in_class, i = "", False, 0
    while i < len(pattern):
        char = pattern[i : i + 2] if pattern[i] == "\\" else pattern[i]
        i += len(char)
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == ".":
            char = r"[^\n\r\u2028\u2029]"
        elif char == "$":
            char = r"\Z"
        out += char
    return out


def run(rows: list[dict[str, Any]], walks: int, options: argparse.Namespace) -> dict[str, Any]:
    """``walks`` walks spread over the first ``options.schemas`` of ``rows`` that are not refused."""
    vocabulary = tokens.load()
    engine_vocabulary = Vocabulary.from_bytes(vocabulary.tokens, eos_token_ids=[vocabulary.eos])
    walker = Walker(vocabulary, options.seed)
    found: dict[str, Any] = {
        "schemas": 0,
        "walks": 0,
        "finished": 0,
        "valid": 0,
        "way_out": 0,
        "tokens": 0,
        "refused": [],
        "faults": [],
    }
    wanted = min(options.schemas, len(rows))
    each = -(-walks // wanted)
    for row in track(rows, "schemas"):
        if found["schemas"] == wanted:
            break
        try:
            index = Index.from_json_schema(row["schema"], engine_vocabulary)
        except SpecError:
            found["refused"].append(row["name"])
            continue
        judge = validator(row["schema"])
        way_out = WayOut(index)
        found["schemas"] += 1
        for number in range(each):
            budget = options.patience if number % 2 else walker.random.randrange(1, options.budget)
            found["walks"] += 1
            try:
                text, shortened = walker.walk(index, way_out, budget)
            except (DeadEnd, NoWayOut) as error:
                found["faults"].append({"schema": row["name"], "fault": type(error).__name__, "text": str(error)})
                continue
            found["finished"] += 1
            found["way_out"] += shortened
            try:
                judge.validate(parse(text.decode()))
                found["valid"] += 1
            except (ValueError, jsonschema.ValidationError) as error:
                fault = str(error).splitlines()[0][:300]
                shown = text[-300:].decode(errors="replace")
                found["faults"].append({"schema": row["name"], "fault": fault, "text": shown})
    found["tokens"] = walker.taken
    return found


def main() -> int:
    """Command line. Exit status 1 when a walk does not finish or a text is invalid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--walks", type=int, default=20_000)
    parser.add_argument("--schemas", type=int, default=500, help="a fixed random sample of MaskBench's")
    parser.add_argument("--budget", type=int, default=120, help="most tokens of a walk before it takes the way out")
    parser.add_argument("--patience", type=int, default=1_000, help="the same for walks without a budget")
    parser.add_argument("--only", default="", help="schemas whose names hold this text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.set_int_max_str_digits(0)
    # Some to spare: another is taken for one that is refused.
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
