"""Calls of custom tools with a grammar, on a running server: each whole input must be a text of its grammar.

    python -m benchmarks.grammar_calls http://127.0.0.1:8000 [--calls 250] [--seed 0] [--at-once 16] [--name MODEL]

The server needs a tool parser (``--enable-auto-tool-choice --tool-call-parser hermes``). Requests go to chat
completions and to Responses, streamed and not, with tool choice required, named and auto. Grammars are written by
hand, Codex's ``apply_patch`` among them, or random. Most requests use ``dotllm_finish``, so that inputs end; the limit
of the others may cut them. Lark's own parser and `re.fullmatch` judge whole inputs. They cannot judge beginnings, so
dotllm's own automaton judges cut inputs, which are counted separately. The program runs until ``--calls`` whole inputs
have been judged, and prints the counts. With ``--name``, it also keeps them under that name in
``benchmarks/results/grammar-calls.json``, where a further run continues. The exit status is 1 if an input does not fit
its grammar, a status is not 200, or the parts of a stream differ from the input at its end.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import lark

from dotllm import Index, Vocabulary

FILE = Path(__file__).parent / "results" / "grammar-calls.json"
PATCH = (Path(__file__).parents[1] / "tests" / "corpus" / "apply_patch.lark").read_text(encoding="utf-8")
"""Codex's own grammar of ``apply_patch``."""


class Grammar(NamedTuple):
    """The format of a custom tool."""

    syntax: str
    definition: str

    def accepts(self, text: str) -> bool:
        """Whether Lark's own parser, or `re`, accepts a text."""
        if self.syntax == "regex":
            return re.fullmatch(self.definition, text) is not None
        # Lark allows no empty terminals, and its default lexer takes only the longest match.
        parser = lark.Lark(self.definition.replace("/(.*)/", "/(.+)/?"), lexer="dynamic_complete")
        try:
            parser.parse(text)
        except lark.exceptions.LarkError:
            return False
        return True

    def begins(self, text: str) -> bool:
        """Whether dotllm finds that a text of the grammar can begin like this."""
        return _index(self).guide().accept_string(text)


@functools.cache
def _index(grammar: Grammar) -> Index:
    vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], 256)
    make = Index.from_regex if grammar.syntax == "regex" else Index.from_grammar
    return make(grammar.definition, vocabulary)


BY_HAND = (
    Grammar("lark", PATCH),
    Grammar("lark", 'start: item~1..4\nitem: ("[ ] " | "[x] ") TEXT "\\n"\nTEXT: /[A-Za-z][A-Za-z ]{0,20}/'),
    Grammar("lark", 'start: sum\nsum: sum ("+" | "-") term | term\nterm: "(" sum ")" | /[0-9]{1,3}/'),
    Grammar("lark", '%import common.INT\n%import common.CNAME\nstart: (CNAME "=" INT "\\n")~1..3'),
    Grammar(
        "lark", 'start: "SELECT " C ("," C)~0..3 " FROM " C (" WHERE " C "=" V)?\nC: /[a-z]{1,8}/\nV: /"[^"]{0,9}"/'
    ),
    Grammar("lark", 'start: (A "," )* A\nA: /[a-c<>\\/]{2,5}/\n%ignore " "'),
    Grammar("lark", 'start: ("</tool_call>" | "\\\\" | "\\"" | "é" | /[^\\n]{1,5}/ "\\n")~1..6'),
    Grammar("regex", r"20[0-9]{2}-[01][0-9]-[0-3][0-9]"),
    Grammar("regex", r"\+[1-9][0-9]{1,2}( [0-9]{2,4}){3}"),
    Grammar("regex", r'("[^"\\\n]{1,12}"|\\["\\n]|<[a-z/_]{1,10}>){1,5}'),
    Grammar("regex", r"([+ -][^\n]{0,16}\n){1,4}"),
    Grammar("regex", r"(?!yes|no)[a-z]{2,9}(\.[a-z]{2,9}){0,2}"),
    Grammar("regex", r"[äöüß€日本\t ]{1,10}"),
)
_WORDS = ("a", "b1", "let ", "\n", "\t", " ", '"', "\\", "{", "</tool_call>", "<tool_call>", "é", "😀", ";", "if(", ")")
_SETS = ("[a-z]", "[0-9]", "[A-F0-9]", r"[^\n]", r"[ \t]", r'["\\<>/]', "[é-ü]")


def random_grammar(chance: Random) -> Grammar:
    """A grammar whose texts are short, because no rule calls itself or an earlier rule."""
    if chance.random() < 0.5:
        return Grammar("regex", _random_pattern(chance, 2))
    rules = [f"r{i}" for i in range(chance.randint(1, 4))]
    lines = []
    for i, name in enumerate(["start", *rules]):
        ways = [" ".join(_random_parts(chance, rules[i:])) for _ in range(chance.randint(1, 3))]
        lines.append(f"{name}: " + " | ".join(ways))
    return Grammar("lark", "\n".join(lines))


def _any_grammar(chance: Random) -> Grammar:
    drawn = chance.random()
    if drawn < 0.15:
        return BY_HAND[0]
    return chance.choice(BY_HAND[1:]) if drawn < 0.55 else random_grammar(chance)


def _random_parts(chance: Random, below: list[str]) -> Iterator[str]:
    """Parts of a rule. They are never empty, because the first part is a literal."""
    yield json.dumps(chance.choice(_WORDS), ensure_ascii=False)
    for _ in range(chance.randint(0, 3)):
        part = chance.choice([f"/{chance.choice(_SETS)}{{1,{chance.randint(1, 6)}}}/".replace('<>/', '<>\\/'),
                              json.dumps(chance.choice(_WORDS), ensure_ascii=False), *below, *below])  # fmt: skip
        yield part + chance.choice(["", "", "", "?", "~1..3"])


def _random_pattern(chance: Random, depth: int) -> str:
    parts = []
    for _ in range(chance.randint(1, 3)):
        if depth and chance.random() < 0.4:
            inner = "|".join(_random_pattern(chance, depth - 1) for _ in range(chance.randint(1, 3)))
            part = f"(?:{inner})"
        else:
            part = chance.choice([chance.choice(_SETS), re.escape(chance.choice(_WORDS))])
            part = part if len(part) == 1 or part[0] == "[" else f"(?:{part})"
        parts.append(part + chance.choice(["", "", "?", "{1,4}"]))
    return "".join(parts)


JSON_TOOL = {
    "name": "lookup",
    "description": "Looks a number up.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    },
}
QUESTIONS = (
    "Add a file hello.txt that says hello.",
    "Write a list: milk, bread, eggs.",
    "Note the date of the first of May 2024.",
    "Go on.",
    "Add the numbers 12 and 30.",
)
SHOWN = (
    {"role": "user", "content": "Use a tool."},
    {"role": "assistant", "content": '<tool_call>\n{"name": "write_a", "arguments": {"input": ""}}\n</tool_call>'},
    {"role": "user", "content": "Good. Now the next one."},
    {"role": "assistant", "content": '<tool_call>\n{"name": "write_a", "arguments": {"input": ""}}\n</tool_call>'},
)
"""A conversation that makes a small model call a tool with auto, where it may say anything."""


@dataclass
class Question:
    """A request, and the grammars of its tools by name."""

    number: int
    grammars: dict[str, Grammar]
    is_chat: bool
    is_streamed: bool
    choice: str
    """required, auto, or the name of a tool."""
    may_be_cut: bool
    asks: str
    has_json_tool: bool

    @property
    def path(self) -> str:
        """The path of its API."""
        return "/v1/chat/completions" if self.is_chat else "/v1/responses"

    def body(self, model: str) -> dict[str, Any]:
        """The body as it is sent."""
        tools = list[dict[str, Any]]()
        if self.has_json_tool:
            function = {"function": JSON_TOOL} if self.is_chat else JSON_TOOL
            tools.append({"type": "function", **function})
        for name, grammar in self.grammars.items():
            form: dict[str, Any] = {"type": "grammar", **grammar._asdict()}
            custom: dict[str, Any] = {"name": name, "description": "It writes.", "format": form}
            if self.is_chat:
                custom["format"] = {"type": "grammar", "grammar": grammar._asdict()}
            tools.append({"type": "custom", "custom": custom} if self.is_chat else {"type": "custom", **custom})
        choice: Any = self.choice
        if choice in self.grammars:
            choice = (
                {"type": "custom", "custom": {"name": choice}} if self.is_chat else {"type": "custom", "name": choice}
            )
        messages = [*(SHOWN if self.choice == "auto" else ()), {"role": "user", "content": self.asks}]
        return {
            "model": model, "tools": tools, "tool_choice": choice, "stream": self.is_streamed, "temperature": 1.0,
            "vllm_xargs": {"dotllm_finish": not self.may_be_cut}, "seed": self.number,
            ("messages" if self.is_chat else "input"): messages,
            ("max_tokens" if self.is_chat else "max_output_tokens"): 70 if self.may_be_cut else 160,
        }  # fmt: skip


def questions(seed: int) -> Iterator[Question]:
    """Yield questions without end."""
    chance, number = Random(seed), 0
    while True:
        for is_chat in (True, False):
            for is_streamed in (True, False):
                for choice in ("required", "named", "auto"):
                    made = [_any_grammar(chance) for _ in range(chance.choice((1, 1, 2)))]
                    grammars = {f"write_{'ab'[i]}": grammar for i, grammar in enumerate(made)}
                    named = chance.choice(list(grammars)) if choice == "named" else choice
                    asks = chance.choice(QUESTIONS)
                    may_be_cut, has_json_tool = chance.random() < 0.15, chance.random() < 0.5
                    yield Question(number, grammars, is_chat, is_streamed, named, may_be_cut, asks, has_json_tool)
                    number += 1


class Call(NamedTuple):
    """A call that has ended."""

    name: str
    text: str
    parts: str
    """The text, joined from the parts in a stream's events."""


@dataclass
class Seen:
    """What the answers so far have shown."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)

    @property
    def judged(self) -> int:
        """How many inputs have been judged."""
        return self.counts["judged"]

    def take(self, question: Question, status: int, answer: Any) -> None:
        """Judge an answer."""
        api = "chat" if question.is_chat else "responses"
        choice = "named" if question.choice in question.grammars else question.choice
        where = f"{api}, {'streamed' if question.is_streamed else 'whole'}, {choice}"
        self.counts["requests"] += 1
        if status != 200:
            self._say(question, f"status {status}: {answer}")
            return
        calls, ended = (_of_chat if question.is_chat else _of_response)(answer, question.is_streamed)
        self.counts["cut"] += not ended
        self.counts["without a call"] += ended and not calls
        if ended and not calls and choice != "auto":
            self._say(question, f"no call: {answer}")
        for call in calls:
            if not ended:
                if call.name in question.grammars and call.parts:
                    self._take_beginning(question, call)
                continue
            if call.text != call.parts:
                self._say(question, f"{call.text!r} came in parts as {call.parts!r}")
            if call.name == "lookup":
                self.counts["calls of the JSON tool"] += 1
                if not _looks_up(call.text):
                    self._say(question, f"lookup {call.text!r}")
                continue
            grammar = question.grammars[call.name]
            kind = "apply_patch" if grammar.definition == PATCH else grammar.syntax
            self.counts.update(("judged", where, kind, f"of {len(question.grammars) + question.has_json_tool} tools"))
            if not grammar.accepts(call.text):
                self._say(question, f"{call.text!r} is not a text of {grammar}")

    def _take_beginning(self, question: Question, call: Call) -> None:
        self.counts["beginnings"] += 1
        grammar = question.grammars[call.name]
        if not grammar.begins(call.parts):
            self._say(question, f"no text of {grammar} begins with {call.parts!r}")

    def _say(self, question: Question, what: str) -> None:
        self.wrong.append({"what": what, "body": question.body("MODEL")})
        print(what, file=sys.stderr, flush=True)


def _looks_up(text: str) -> bool:
    try:
        arguments = json.loads(text)
    except ValueError:
        return False
    return isinstance(arguments, dict) and [*arguments] == ["n"] and type(n := arguments["n"]) is int and n <= 99


def _of_chat(answer: Any, is_streamed: bool) -> tuple[list[Call], bool]:
    if not is_streamed:
        choice = answer["choices"][0]
        found = [(call["type"], call[call["type"]]) for call in choice["message"].get("tool_calls") or ()]
        texts = [(one["name"], one["input" if kind == "custom" else "arguments"]) for kind, one in found]
        return [Call(name, text, text) for name, text in texts], choice["finish_reason"] != "length"
    calls, reason = dict[int, list[str]](), ""
    for choice in (choice for event in answer for choice in event["choices"]):
        reason = choice.get("finish_reason") or reason
        for part in choice["delta"].get("tool_calls") or ():
            one = part.get("custom") or part.get("function") or {}
            call = calls.setdefault(part["index"], ["", ""])
            call[0] += one.get("name") or ""
            call[1] += one.get("input") or one.get("arguments") or ""
    return [Call(name, text, text) for name, text in calls.values()], reason != "length"


def _of_response(answer: Any, is_streamed: bool) -> tuple[list[Call], bool]:
    parts: dict[str, str] = {}
    if is_streamed:
        for event in answer:
            if event["type"].endswith(("custom_tool_call_input.delta", "function_call_arguments.delta")):
                parts[event["item_id"]] = parts.get(event["item_id"], "") + event["delta"]
        answer = answer[-1]["response"]
    items = [item for item in answer["output"] if item["type"] in ("custom_tool_call", "function_call")]
    texts = [(item["name"], item.get("input", item.get("arguments"))) for item in items]
    ways = list(parts.values()) if is_streamed else [text for _, text in texts]
    ways += [""] * (len(texts) - len(ways))
    return [Call(name, text, way) for (name, text), way in zip(texts, ways, strict=True)], answer[
        "status"
    ] == "completed"


async def ask(
    url: str, calls: int, seen: Seen, *, seed: int, at_once: int, seconds: float, save: Callable[[], None]
) -> None:
    """Ask until ``calls`` inputs have been judged or ``seconds`` have passed; call ``save`` after each answer."""
    asked = islice(questions(seed), seen.counts["requests"], None)
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    # Lark takes seconds for some texts. If the event loop waited for it, the server would close connections.
    judge = ThreadPoolExecutor(1)
    async with httpx.AsyncClient(base_url=url, timeout=600.0) as client:
        model = (await client.get("/v1/models")).json()["data"][0]["id"]

        async def one_after_the_other() -> None:
            while seen.judged < calls and loop.time() < ends:
                question = next(asked)
                async with client.stream("POST", question.path, json=question.body(model)) as response:
                    is_stream = response.headers["content-type"].startswith("text/event-stream")
                    answer = (
                        [one async for one in _events(response)] if is_stream else json.loads(await response.aread())
                    )
                await loop.run_in_executor(judge, seen.take, question, response.status_code, answer)
                save()

        await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))


async def _events(response: httpx.Response) -> AsyncIterator[Any]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--calls", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--name")
    asked = parser.parse_args()
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    before = results.get(asked.name, {"counts": {}, "wrong": []})
    seen = Seen(Counter(before["counts"]), before["wrong"])

    def save() -> None:
        if asked.name:
            results[asked.name] = {"counts": dict(sorted(seen.counts.items())), "wrong": seen.wrong}
            FILE.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")

    settings = {"seed": asked.seed, "at_once": asked.at_once, "seconds": asked.seconds}
    asyncio.run(ask(asked.url, asked.calls, seen, save=save, **settings))
    print(json.dumps(dict(sorted(seen.counts.items())), indent=1))
    return int(bool(seen.wrong))


if __name__ == "__main__":
    sys.exit(main())
