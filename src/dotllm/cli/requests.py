"""``dotllm check --requests``: which of a server's logged requests would be refused, and with which code.

A line is the body of a request, alone or in an object that also names its path: ``{"path": "/v1/responses",
"body": {…}}``, or OpenAI's batch form with ``url``. vLLM's own classes parse it, with our hooks, so what is refused
before anything is compiled is refused here, too. Then every constraint is checked as the front end of a server checks
it: those of formats, of ``structured_outputs``, of strict tools and of custom tools with a grammar. What depends on the
running server is not checked: how many tokens an answer may have, and what its tool parser can express.

``dotllm serve --dotllm-preview`` passes its requests to a process that runs this code
(`dotllm.vllm_plugin.extra.preview`), so the counts of both are the same.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from dotllm.cancellation import Cancelled, cancellable
from dotllm.compilation import Specification, validation_cache
from dotllm.compilation.specification import Kind
from dotllm.errors import BudgetExceededError, SpecError

if TYPE_CHECKING:
    from dotllm.languages.token_names import TokenNames

CHAT, COMPLETION, RESPONSES, MESSAGES = PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
"""The routes whose requests are checked."""
ENFORCED, UNCONSTRAINED, REFUSED, INVALID = "enforced", "unconstrained", "refused", "invalid"
"""Outcomes. ``invalid``: vLLM itself rejects the request."""
_OPENAI = "vllm.entrypoints.openai"
_CLASSES = {
    CHAT: (f"{_OPENAI}.chat_completion.protocol", "ChatCompletionRequest"),
    COMPLETION: (f"{_OPENAI}.completion.protocol", "CompletionRequest"),
    RESPONSES: (f"{_OPENAI}.responses.protocol", "ResponsesRequest"),
    MESSAGES: ("vllm.entrypoints.anthropic.protocol", "AnthropicMessagesRequest"),
}
_MOST_SECONDS = 10.0
"""Seconds of CPU time: a check that takes longer has the code ``too_slow``, as a server's compile has."""


class Outcome(NamedTuple):
    """What would become of a request, as ``--json`` prints it."""

    name: str
    path: str
    outcome: str
    code: str = ""
    """One of `dotllm.errors.CODES`, if it is refused."""
    field: str = ""
    message: str = ""


class Judge:
    """Judges requests as a server with these options does. Raises ImportError without vLLM."""

    def __init__(self, config: Mapping[str, Any], token_names: Callable[[], TokenNames | None] = lambda: None) -> None:
        """``config``: vLLM's options of structured outputs. ``token_names`` gives the tokenizer's named tokens."""
        from dotllm.vllm_plugin import registry
        from dotllm.vllm_plugin.enforce import engine_info

        for entry in registry.ENTRIES:
            if entry.name in ("validation", "unsupported-fields", "custom-tools") and (fault := registry.fault(entry)):
                raise ImportError(f"dotllm does not fit the installed vLLM: {fault}; see `dotllm hooks`")
        engine_info.remember(None)
        self._config, self._token_names = SimpleNamespace(**config), token_names
        validation_cache.check(Specification.create(Kind.REGEX, "a"))  # loads the kernels
        self._classes = {path: getattr(importlib.import_module(m), name) for path, (m, name) in _CLASSES.items()}

    def judge(self, name: str, path: str, body: Any) -> Outcome:
        """What would become of a request."""
        from pydantic import ValidationError
        from vllm.exceptions import VLLMValidationError

        try:
            specifications = [*self._constraints(self._parsed(path, body))]
            for specification in specifications:
                self._check(specification)
        except SpecError as error:
            return Outcome(name, path, REFUSED, error.code, str(error.pointer or ""), str(error))
        except VLLMValidationError as error:
            code = getattr(error, "dotllm_code", "")
            return Outcome(name, path, REFUSED if code else INVALID, code, error.parameter or "", str(error.args[0]))
        except (ValidationError, ValueError, TypeError, RecursionError) as error:
            return Outcome(name, path, INVALID, "", "", str(error)[:400])
        return Outcome(name, path, ENFORCED if specifications else UNCONSTRAINED)

    def _parsed(self, path: str, body: Any) -> Any:
        from dotllm.vllm_plugin.api import unsupported_fields

        request = self._classes[path].model_validate(body)
        if path != MESSAGES:
            unsupported_fields.refuse_fields(request)
        return request

    def _constraints(self, request: Any) -> Iterator[Specification]:
        """The specifications of a parsed request. Raises what a server raises to refuse it."""
        from dotllm.vllm_plugin.specification import of_sampling_params

        structured = _structured(request)
        fields = getattr(request, "vllm_xargs", None)
        if structured is not None:
            asked: Any = SimpleNamespace(structured_outputs=structured, extra_args=fields, ignore_eos=False)
            config: Any = self._config
            yield of_sampling_params(asked, config)
        choice = getattr(request, "tool_choice", None)
        if choice != "none" and getattr(choice, "type", None) != "none":
            for form in _forms_of_tools([_of_openai(tool) for tool in getattr(request, "tools", None) or ()]):
                yield Specification.from_value(Kind.STRUCTURAL_TAG, {"type": "structural_tag", "format": form}, None)

    def _check(self, specification: Specification) -> None:
        """Check a specification within `_MOST_SECONDS`. Raises `SpecError`."""
        try:
            with cancellable(_Clock()):
                validation_cache.check(specification, self._token_names)
        except Cancelled:
            message = f"it takes more than {_MOST_SECONDS:g} seconds"
            raise BudgetExceededError(message, keyword="time", code="too_slow") from None


class _Clock(threading.Event):
    """An event that is set once this thread has used its CPU time, so a busy machine does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self._end = time.thread_time() + _MOST_SECONDS

    def is_set(self) -> bool:
        return time.thread_time() > self._end


def _structured(request: Any) -> Any:
    """The constraint of a request, without those of its tools, as ``StructuredOutputsParams``."""
    from vllm.sampling_params import StructuredOutputsParams

    config = getattr(request, "output_config", None)
    form = getattr(config, "format", None)
    if form is not None:
        return StructuredOutputsParams(json=getattr(form, "json_schema", None) or getattr(form, "schema_", None))
    structured = request.extract_structured_outputs() if hasattr(request, "extract_structured_outputs") else None
    return None if structured is None or structured.all_constraints_none() else structured


def _of_openai(tool: Any) -> Any:
    """``tool`` in OpenAI's form: a tool of Anthropic's API is converted as vLLM converts it for chats."""
    if not hasattr(tool, "input_schema"):
        return tool
    return SimpleNamespace(name=tool.name, strict=tool.strict, parameters=tool.input_schema)


def _forms_of_tools(tools: Any) -> Iterator[dict[str, Any]]:
    """The formats that calls of strict tools and of tools with a grammar must have. Raises if a tool is refused."""
    from dotllm.vllm_plugin.tools import custom_tools, tag_rewrite

    tag_rewrite.refuse_no_objects(tools)
    tag_rewrite.refuse_infinite_numbers(tools)
    for _, _, function in tag_rewrite.functions(tools):
        form = custom_tools.grammar_of(function)
        if form is not None:
            yield {"type": "json_schema", "json_schema": {"type": "object"}, "input_grammar": form._asdict()}
        elif getattr(function, "strict", False):
            schema = tag_rewrite.stated_parameters(function)
            yield {"type": "json_schema", "json_schema": schema or {"type": "object"}, "finite_numbers": True}


def path_of(body: Mapping[str, Any]) -> str:
    """The path of a request, judged by its body alone."""
    if "input" in body and "messages" not in body:
        return RESPONSES
    if "prompt" in body and "messages" not in body:
        return COMPLETION
    tools = body.get("tools")
    of_messages = "output_config" in body or "system" in body or "stop_sequences" in body
    of_messages |= isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
    return MESSAGES if of_messages else CHAT


def judged(lines: Iterable[str], judge: Judge, name: str) -> Iterator[Outcome]:
    """The outcome of each line that is not blank."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _judged(line, judge, f"{name}:{number}")


def _judged(line: str, judge: Judge, name: str) -> Outcome:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Outcome(name, "", INVALID, "", "", f"not JSON: {error}")
    body = read.get("body", read) if isinstance(read, dict) else None
    if not isinstance(body, dict):
        return Outcome(name, "", INVALID, "", "", "not an object")
    path = str((read.get("path") or read.get("url") or "") if body is not read else "") or path_of(body)
    path = next((known for known in PATHS if path.rstrip("/").endswith(known)), path)
    if path not in PATHS:
        return Outcome(name, path, UNCONSTRAINED)
    return judge.judge(name, path, body)


def run(lines: Iterable[str], judge: Judge, name: str, *, as_json: bool, out: TextIO | None = None) -> int:
    """Print each request's outcome (as text: only refusals, then counts). Returns the number of refused requests."""
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in judged(lines, judge, name):
        counts[outcome.outcome, outcome.code] += 1
        if as_json:
            print(json.dumps(outcome._asdict()), file=out, flush=True)
        elif outcome.outcome == REFUSED:
            print(f"{outcome.name}: {outcome.path}: error[{outcome.code}]: {outcome.message}", file=out, flush=True)
    if not as_json:
        total = sum(counts.values())
        for (kind, code), count in sorted(counts.items()):
            print(f"{count:8,} of {total:,} {kind}{f' ({code})' if code else ''}", file=out)
    return sum(count for (kind, _), count in counts.items() if kind == REFUSED)
