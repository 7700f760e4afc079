"""The ledger: the state in which somebody last read each function of vLLM that we replace, override or rely on.

``ledger.json`` has, for each release that we support, a hash of each such function, and the fields of the classes that
our lists of fields cover. A function that has changed may do something that we do not expect, even if its name and
parameters are the same; a new field may ask for something that we do not handle; an attribute may have another default.
So each change fails ``check_hooks`` until somebody has read and signed it (``check_hooks.py --sign``). If a function
differs from the release before, a note says what has changed, and why the code that relies on it holds. vLLM's source
files are read as syntax trees; no part of vLLM is imported.

A hash covers what the function does: docstrings, comments, annotations and layout do not count, nor does the version of
Python that reads it.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dotllm.cli.hook_sources import Source, definition, has_attribute, parse
from dotllm.vllm_plugin.hook import Hook

FILE = Path(__file__).with_name("ledger.json")

State = str | list[str]
"""A function's hash, a class's fields, or an attribute's value in its class (without a value: whether it exists)."""
Ledger = dict[str, dict[str, State]]
"""By release and ``module:Class.name``."""

ABSENT, THERE = "absent", "there"

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_TOOL_PARSER = "vllm.tool_parsers.abstract_tool_parser:ToolParser"
RELIED_ON = (
    # The order of a step: results before drafts before masks, and all of it after the launch.
    *("vllm.v1.engine.core:EngineCore.step", "vllm.v1.engine.core:EngineCore.step_with_batch_queue"),
    "vllm.v1.engine.core:EngineCore.post_step",
    # How a request's state changes around ours.
    *(f"{_SCHEDULER}._preempt_request", f"{_SCHEDULER}._update_request_with_output", f"{_SCHEDULER}.finish_requests"),
    *(f"{_SCHEDULER}.reset_prefix_cache", "vllm.v1.core.sched.async_scheduler:AsyncScheduler._update_after_schedule"),
    "vllm.v1.core.sched.async_scheduler:AsyncScheduler._update_request_with_output",
    # Which masks vLLM asks for, and which tokens it passes to grammars.
    "vllm.v1.structured_output:StructuredOutputManager._get_constraint_bounds",
    "vllm.v1.structured_output:StructuredOutputManager._masked_reasoning_ends",
    "vllm.v1.structured_output:StructuredOutputManager.validate_tokens",
    "vllm.v1.structured_output.request:StructuredOutputRequest.grammar",
    "vllm.v1.structured_output.request:get_structured_output_key",
    # What workers do with masks, drafts and entered text.
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.sample_tokens",
    "vllm.v1.worker.gpu.model_runner:GPUModelRunner.sample",
    "vllm.v1.worker.gpu.states:RequestState.apply_staged_writes",
    # Results, and the masses with them, are copied after the work that has been launched.
    "vllm.v1.worker.gpu_model_runner:AsyncGPUModelRunnerOutput.__init__",
    "vllm.v1.worker.gpu.async_utils:AsyncOutput.__init__",
    # Where a front end records what it knows of a request's tokens.
    "vllm.v1.engine.logprobs:LogprobsProcessor.update_from_output",
    # What hides the grammar and the format of a custom tool.
    "vllm.entrypoints.openai.responses.protocol:ResponsesRequest.check_custom_tool_format",
    "vllm.entrypoints.generate.base.protocol:FunctionDefinition._serialize",
    # Where plugins are loaded, and what Ray's processes are given.
    *("vllm.plugins:load_general_plugins", "vllm.ray.ray_env:get_env_vars_to_copy"),
    # Read with `getattr`, since only some releases have them.
    "vllm.v1.structured_output:StructuredOutputManager.backend_name",
    "vllm.v1.structured_output.request:StructuredOutputRequest.masked_reasoning_end_ids",
    "vllm.v1.engine:EngineCoreOutput.error",
    "vllm.entrypoints.generate.beam_search.offline:get_beam_search_eos_token_ids",
    # Read with `getattr`, since not all classes have them, or their values.
    *(f"vllm.parser.abstract_parser:Parser.{name}" for name in ("tool_strict_level", "model_tokenizer")),
    *(f"{_TOOL_PARSER}.{name}" for name in ("structural_tag_model", "supports_required_and_named")),
    "vllm.tool_parsers.mistral_tool_parser:MistralToolParser.IS_MISTRAL_TOOL_PARSER",
    "vllm.parser.engine.adapters:ParserEngineToolAdapter._parser_engine",
    "vllm.parser.mistral:MistralParser._is_pre_v11",
    "vllm.reasoning.abs_reasoning_parsers:ReasoningParser.reasoning_end_str",
    "vllm.entrypoints.generate.base.serving:GenerateBaseServing.engine_client",
    "vllm.entrypoints.anthropic.serving:AnthropicServingMessages.create_messages",
)
"""Functions and attributes that no hook replaces, but on which the code relies."""

_OPENAI, _BASE = "vllm.entrypoints.openai", "vllm.entrypoints.generate.base.protocol"
FIELDS = (
    *("vllm.sampling_params:SamplingParams", "vllm.sampling_params:StructuredOutputsParams"),
    *(f"{_OPENAI}.chat_completion.protocol:{name}" for name in ("ChatCompletionRequest", "BatchChatCompletionRequest")),
    *(f"{_OPENAI}.completion.protocol:CompletionRequest", f"{_OPENAI}.responses.protocol:ResponsesRequest"),
    "vllm.entrypoints.anthropic.protocol:AnthropicMessagesRequest",
    "vllm.entrypoints.scale_out.token_in_token_out.protocol:GenerateRequest",
    "vllm.v1.engine:EngineCoreRequest",
    *(f"{_BASE}:{name}" for name in ("FunctionDefinition", "JsonSchemaResponseFormat", "ResponseFormat")),
    *(f"{_OPENAI}.chat_completion.protocol:{name}" for name in ("ChatCompletionToolsParam", "ChatCompletionResponse")),
)
"""Classes whose fields our lists cover: a new field may ask for something that no list handles."""


class Change(NamedTuple):
    """A function, class or attribute that differs from its signed form."""

    name: str
    how: str


def names(hooks: Iterable[Hook]) -> list[str]:
    """The names of everything that must be signed."""
    targets = (target for hook in hooks for target in hook.targets if target.parameters is not None)
    places = {f"{target.module}:{target.name}" for target in targets if target.module.startswith("vllm.")}
    return sorted({*places, *RELIED_ON, *FIELDS})


def read(file: Path = FILE) -> Ledger:
    """The ledger in ``file``."""
    whole = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    ledger: Ledger = whole.get("signed", {})
    return ledger


def of_release(version: str, ledger: Ledger) -> str:
    """The release in ``ledger`` with which ``version`` (0.33.1, 0.32.0+cpu) is compared: its own, or the newest."""
    own = [release for release in ledger if version.split(".")[:2] == release.split(".")[:2]]
    return (own or sorted(ledger))[-1]


def changes(version: str, wanted: Iterable[str], source: Source, ledger: Ledger) -> list[Change]:
    """Those of ``wanted`` that differ in ``version`` from their signed form."""
    signed = ledger[of_release(version, ledger)]
    states = ((name, signed.get(name), state(name, source)) for name in wanted)
    return [Change(name, _how(before, now)) for name, before, now in states if before != now]


def _how(before: State | None, now: State) -> str:
    if before is None:
        return "nobody has signed it"
    if isinstance(before, list) and isinstance(now, list):
        new, gone = sorted({*now} - {*before}), sorted({*before} - {*now})
        return "; ".join([*(f"new field {name}" for name in new), *(f"no field {name} any more" for name in gone)])
    if ABSENT in (before, now):
        return "it is gone" if now == ABSENT else "it is new"
    return "its body or its parameters have changed"


def state(name: str, source: Source) -> State:
    """The state of a function, a class (its fields) or an attribute of vLLM."""
    module, _, path = name.partition(":")
    text = source(module)
    scope = parse(text).body if text else []
    *owners, leaf = path.split(".")
    for owner in owners:
        holder = definition(scope, owner)
        scope = holder.body if isinstance(holder, ast.ClassDef) else []
    node = definition(scope, leaf)
    if isinstance(node, ast.ClassDef):
        return sorted(_fields(node))
    if node is not None:
        return hashlib.sha256("".join(_normal(node)).encode()).hexdigest()[:16]
    value = _value(scope, leaf)
    if value is not None:
        return f"= {ast.unparse(value)}"
    return THERE if has_attribute(scope, leaf) or _imports(scope, leaf) else ABSENT


def _value(scope: Iterable[ast.stmt], name: str) -> ast.expr | None:
    """The value that a class gives its attribute ``name``."""
    for statement in scope:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return statement.value
    return None


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The annotated names in the body of a class, except class variables."""
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or "ClassVar" in ast.unparse(statement.annotation):
            continue
        if isinstance(statement.target, ast.Name):
            yield statement.target.id


def _imports(scope: Iterable[ast.stmt], name: str) -> bool:
    """Whether something in ``scope`` imports ``name`` from a module."""
    imported = (node for statement in scope for node in ast.walk(statement) if isinstance(node, ast.ImportFrom))
    return any(name == (alias.asname or alias.name) for node in imported for alias in node.names)


_ANNOTATIONS = ("annotation", "returns", "type_comment", "type_params", "ctx", "kind", "simple")


def _normal(node: object) -> Iterator[str]:
    """What a syntax tree does, as text that is the same in each version of Python.

    Empty fields are left out, because later versions have more fields.

    Yields:
        The text, in parts.
    """
    if isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if name in _ANNOTATIONS or value is None or value == []:
                continue
            if name == "body" and isinstance(value, list) and _is_text(value[0]):
                value = value[1:]
            yield f" {name}="
            yield from _normal(value)
        yield ")"
    elif isinstance(node, list):
        for item in node:
            yield from _normal(item)
            yield ","
    else:
        yield repr(node)


def _is_text(statement: object) -> bool:
    """Whether a statement is only a string, as a docstring is."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
