"""The judge of structural tags: it decides whether a text matches a format by trying every place where a part can end.

It follows the table in docs/structural-tags.md and shares nothing with the compiler: no grammar, no automaton. A text
is a string in which each special token is one character (`SPECIAL`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from benchmarks.walks import parse, validator
from dotllm import Index
from tests.fuzz import walks

NAME, SPECIAL = "<tool_call>", "\ue000"
GRAMMARS = {'root ::= "a" | "b" root': "b*a", 'start: "a"+': "a+"}
"""the grammars that `makers.structural_tag` writes, as regular expressions"""


def walk(index: Index, random: Random, marks: str) -> str | None:
    """A text of the index, mostly of characters of ``marks``; None if the walk did not end."""
    guide, of = index.guide(), index.vocabulary
    [end], special = of.eos_token_ids, of.special_tokens[NAME]
    parts: list[bytes] = []
    for step in range(70):
        everything = list(guide.allowed_tokens())
        assert everything, f"a dead end after {parts}"
        assert (end in everything) == guide.can_finish
        allowed = [token for token in everything if token != end]
        if guide.can_finish and (not allowed or step > 25 or random.random() < 0.1):
            return b"".join(parts).decode()
        likely = [
            token
            for token in allowed
            if token == special or (of.token_bytes(token) or b"\xff").decode("utf-8", "replace") in marks
        ]
        token = random.choice(likely if likely and random.random() < 0.9 else allowed)
        assert guide.advance(token), (parts, token)
        parts.append(SPECIAL.encode() if token == special else of.token_bytes(token) or b"")
    return None


def spoilt(random: Random, text: str, marks: str) -> str:
    """``text`` with a piece inserted (of itself or of ``marks``), removed or replaced."""
    before = text
    while text == before:
        of = random.choice([text, text, marks, SPECIAL])
        start, at = random.randint(0, len(of)), random.randint(0, len(text))
        piece = random.choice([of[start : start + random.choice([1, 2, 5])], ""])
        text = text[:at] + piece + text[at + random.choice([0, 0, 1, 2]) :]
    return text


def reads(index: Index, text: str) -> bool:
    """Whether the index accepts ``text``, in which `SPECIAL` stands for the special token."""
    special = index.vocabulary.special_tokens[NAME]
    return walks.reads(index, (token for part in text for token in ([special] if part == SPECIAL else part.encode())))


Behind = Callable[[set[int]], set[int]]
"""For what follows a trigger: from the places where it may begin to the places where it can end."""


class Unknown(Exception):
    """The judge does not know this format."""


def judge(tag: Any, text: str) -> bool:
    """Whether ``text`` matches a structural tag.

    Raises:
        Unknown: The tag has a format that the judge does not know.
    """
    if tag.get("structures") is not None:
        tags = [
            {**one, "content": {"type": "json_schema", "json_schema": one.get("schema", {})}}
            for one in tag["structures"]
        ]
        format_ = {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
    else:
        format_ = tag["format"]
    return len(text) in Text(text).ends(format_, {0}, ())


def marked(text: str) -> str:
    """``text`` of a tag as it appears in a judged text."""
    return text.replace(NAME, SPECIAL)


def _flag(format_: Any, name: str, *, absent: bool = False) -> bool:
    value = format_.get(name)
    return absent if value is None else bool(value)


class Text:
    """``ends`` of a format: all places where it can end if it begins at one of ``starts``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def ends(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        """``outer``: the ends of the enclosing tag, which free text must not contain."""
        found: set[int] = getattr(self, "_" + format_["type"], self._unknown)(format_, starts, outer)
        return found

    def _unknown(self, format_: Any, *_: Any) -> set[int]:
        raise Unknown(format_["type"])

    def _fixed(self, text: str, starts: Iterable[int]) -> set[int]:
        text = marked(text)
        return {at + len(text) for at in starts if self.text.startswith(text, at)}

    def _matching(self, starts: set[int], fits: Any) -> set[int]:
        return {
            end for at in starts for end in range(at, len(self.text) + 1)
            if SPECIAL not in self.text[at:end] and fits(self.text[at:end])
        }  # fmt: skip

    # ---- contents

    def _const_string(self, format_: Any, starts: set[int], _: Any) -> set[int]:
        return self._fixed(format_["value"], starts)

    def _regex(self, format_: Any, starts: set[int], _: Any) -> set[int]:
        return self._matching(starts, re.compile(format_["pattern"]).fullmatch)

    def _grammar(self, format_: Any, starts: set[int], _: Any) -> set[int]:
        if format_["grammar"] not in GRAMMARS:
            raise Unknown(format_["grammar"])
        return self._matching(starts, re.compile(GRAMMARS[format_["grammar"]]).fullmatch)

    def _json_schema(self, format_: Any, starts: set[int], _: Any) -> set[int]:
        of_schema = validator(format_["json_schema"])
        if extra := format_.keys() - {"type", "json_schema"}:
            raise Unknown(str(extra))

        def fits(text: str) -> bool:
            try:
                values = parse(text), json.loads(text)  # 1e308 is exact in the first, a double in the second
                return text == text.strip() and any(map(of_schema.is_valid, values))
            except ValueError:
                return False

        return self._matching(starts, fits)

    def _any_text(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        return self._free({}, format_.get("excludes") or [], starts, outer, loop=True)

    # ---- combinations

    def _sequence(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        for element in format_["elements"]:
            starts = self.ends(element, starts, outer)
        return starts

    def _or(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        return set().union(*(self.ends(element, starts, outer) for element in format_["elements"]))

    def _optional(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        return starts | self.ends(format_["content"], starts, outer)

    def _star(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        found, new = set(starts), set(starts)
        while new:
            new = self.ends(format_["content"], new, outer) - found
            found |= new
        return found

    def _plus(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        return self._star(format_, self.ends(format_["content"], starts, outer), outer)

    def _repeat(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        low, high = format_["min"], format_["max"]
        for _ in range(low):
            starts = self.ends(format_["content"], starts, outer)
        if high < 0:
            return self._star(format_, starts, outer)
        found = set(starts)
        for _ in range(high - low):
            starts = self.ends(format_["content"], starts, outer)
            found |= starts
        return found

    # ---- tags

    def _tag(self, format_: Any, starts: set[int], _: Any) -> set[int]:
        return self._rest(format_, self._fixed(format_["begin"], starts))

    def _rest(self, tag: Any, starts: set[int]) -> set[int]:
        """After the begin of a tag: its content and one of its ends."""
        ends = [tag["end"]] if isinstance(tag["end"], str) else tag["end"]
        inner = self.ends(tag["content"], starts, tuple(end for end in ends if end)) if starts else set()
        return set().union(*(self._fixed(end, inner) for end in ends))

    def _tags_with_separator(self, format_: Any, starts: set[int], _: Any) -> set[int]:
        def one(at: set[int]) -> set[int]:
            return set().union(*(self._tag(tag, at, ()) for tag in format_["tags"]))

        found = new = one(starts)
        while new and not _flag(format_, "stop_after_first"):
            new = one(self._fixed(format_["separator"], new)) - found
            found = found | new
        return found if _flag(format_, "at_least_one") else found | starts

    def _triggered_tags(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        behind: dict[str, list[Behind]] = {trigger: [] for trigger in format_["triggers"]}
        for tag in format_["tags"]:
            [trigger] = [one for one in behind if tag["begin"].startswith(one)]
            rest = tag["begin"].removeprefix(trigger)
            behind[trigger].append(lambda at, tag=tag, rest=rest: self._rest(tag, self._fixed(rest, at)))
        once = _flag(format_, "stop_after_first")
        if _flag(format_, "at_least_one"):
            starts = set().union(
                *(one(self._fixed(trigger, starts)) for trigger, several in behind.items() for one in several)
            )
            if once:
                return starts
        used = {trigger: several for trigger, several in behind.items() if several}
        return self._free(used, format_.get("excludes") or [], starts, outer, loop=not once)

    def _dispatch(self, format_: Any, starts: set[int], outer: tuple[str, ...]) -> set[int]:
        behind: dict[str, list[Behind]] = {}
        for trigger, content in format_["rules"]:
            behind.setdefault(trigger, []).append(lambda at, content=content: self.ends(content, at, outer))
        return self._free(
            behind, format_.get("excludes") or [], starts, outer, loop=_flag(format_, "loop", absent=True)
        )

    def _free(
        self, behind: dict[str, list[Behind]], excluded: list[str], starts: set[int], outer: tuple[str, ...], *, loop: bool
    ) -> set[int]:  # fmt: skip
        """Free text without an excluded text or an outer end; what follows a trigger is one of its ``behind``."""
        triggers = {marked(trigger): several for trigger, several in behind.items()}
        if any(one != other and one in other for one in triggers for other in triggers):
            raise Unknown("triggers in one another")
        banned = [marked(one) for one in (*excluded, *outer)]
        found: set[int] = set()
        todo, seen = list(starts), set(starts)
        while todo:
            start = todo.pop()
            for at in range(start, len(self.text) + 1):
                free = self.text[start:at]
                if any(map(free.endswith, triggers)):
                    [several] = [several for trigger, several in triggers.items() if free.endswith(trigger)]
                    ends = set().union(*(one({at}) for one in several))
                    if loop:
                        todo += ends - seen
                        seen |= ends
                    else:
                        found |= ends
                    break
                if any(map(free.endswith, banned)) or (
                    free.endswith(SPECIAL) and not any(one.startswith(free[i:]) for one in triggers for i in range(len(free)))
                ):  # fmt: skip
                    break
                found.add(at)
        return found
