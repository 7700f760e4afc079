"""Lists all hooks, with the tier and the process of each, and applies them once per process.

A hook's module is imported when the hook is applied, so a process imports only its own hooks, and a tier that is off
costs nothing. vLLM loads plugins once in each process, and the module that loads them tells which kind of process it is
(`ASKED_BY`): a front end parses its arguments, an engine core starts, a worker is made. But one process may have
several of these roles, and a forked process inherits the mark that plugins are loaded. So vLLM's function that loads
plugins applies the hooks of its caller's process whenever it is called.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Sequence
from typing import NamedTuple

from dotllm.vllm_plugin import tiers
from dotllm.vllm_plugin.hook import Hook, HookError, Original
from dotllm.vllm_plugin.tiers import API, ENFORCE, ENGINE_CORE, EXTRA, FRONT_END, SPEED, TOOLS, WORKAROUND, WORKER

logger = logging.getLogger(__name__)


class Entry(NamedTuple):
    """A hook: its name, its tier, its process, and the module whose ``HOOK`` it is."""

    name: str
    tier: str
    process: str
    module: str

    def hook(self) -> Hook:
        """Import the module and return the hook."""
        hook: Hook = importlib.import_module(f"{__package__}.{self.module}").HOOK
        return hook


ENTRIES: tuple[Entry, ...] = (
    Entry("roles", ENFORCE, tiers.EVERY, "registry"),
    Entry("validation", ENFORCE, FRONT_END, "enforce.validation"),
    Entry("front-end", ENFORCE, FRONT_END, "enforce.engine_info"),
    Entry("request-errors", ENFORCE, FRONT_END, "enforce.request_errors"),
    Entry("manager", ENFORCE, ENGINE_CORE, "enforce.compile_hook"),
    Entry("scheduler", ENFORCE, ENGINE_CORE, "enforce.scheduler"),
    Entry("cpu-kernels", ENFORCE, WORKER, "workarounds.cpu_kernels"),  # (whatever is off, a CPU server must start)
    Entry("pending-grammars", SPEED, ENGINE_CORE, "speed.pending_grammars"),
    Entry("warm-start", SPEED, ENGINE_CORE, "speed.warm_start"),
    Entry("batches", SPEED, ENGINE_CORE, "speed.manager_hook"),
    Entry("mask-table", SPEED, WORKER, "speed.worker_hooks"),
    Entry("draft-limit", SPEED, ENGINE_CORE, "speed.draft_limit"),
    Entry("look-ahead", SPEED, ENGINE_CORE, "speed.look_ahead"),
    Entry("front-end-start", API, FRONT_END, "api.reasoning_warning"),
    Entry("backend-options", API, FRONT_END, "api.config"),
    Entry("endpoints", API, FRONT_END, "api.endpoints"),
    Entry("unsupported-fields", API, FRONT_END, "api.unsupported_fields"),
    Entry("messages-errors", API, FRONT_END, "api.messages_errors"),
    Entry("response-headers", API, FRONT_END, "api.response_headers"),
    Entry("background-responses", API, FRONT_END, "api.background_responses"),
    Entry("metrics", API, FRONT_END, "api.metrics"),
    Entry("tool-constraints", TOOLS, FRONT_END, "tools.constraints"),
    Entry("argument-types", TOOLS, FRONT_END, "tools.argument_types"),
    Entry("gemma-calls", TOOLS, FRONT_END, "tools.gemma_calls"),
    Entry("cut-calls", TOOLS, FRONT_END, "tools.cut_calls"),
    Entry("streamed-calls", TOOLS, FRONT_END, "tools.streams"),
    Entry("custom-tools", TOOLS, FRONT_END, "tools.custom_tools"),
    Entry("beam-search", EXTRA, FRONT_END, "extra.beam_search"),
    Entry("inspector", EXTRA, FRONT_END, "extra.inspector"),
    Entry("preview", EXTRA, FRONT_END, "extra.preview"),
    Entry("answer-limit", EXTRA, ENGINE_CORE, "extra.answer_limit"),
    Entry("jump-forward", EXTRA, ENGINE_CORE, "extra.jump_forward"),
    Entry("entered-text", EXTRA, WORKER, "extra.runners"),
    Entry("mass-answers", EXTRA, FRONT_END, "extra.mass.answers"),
    Entry("mass", EXTRA, ENGINE_CORE, "extra.mass.engine"),
    Entry("mass-sums", EXTRA, WORKER, "extra.mass.worker"),
    Entry("cpu-drafts", WORKAROUND, WORKER, "workarounds.cpu_drafts"),
    Entry("cpu-seeds", WORKAROUND, WORKER, "workarounds.cpu_seeds"),
)
"""In the order in which they are applied."""

ASKED_BY = {
    "vllm.engine.arg_utils": (FRONT_END,),
    "vllm.v1.engine.core": (ENGINE_CORE,),
    "vllm.v1.worker.worker_base": (WORKER,),
    "vllm.model_executor.models.registry": (),  # a process that looks at a model's class, and ends
}
"""vLLM's modules that load plugins, and the processes in which they do so. Any other caller gets all hooks."""


def entries(processes: Sequence[str] = tiers.PROCESSES) -> list[Entry]:
    """The hooks of the tiers that are on, for ``processes``."""
    on = tiers.chosen()
    return [entry for entry in ENTRIES if entry.tier in on and entry.process in (tiers.EVERY, *processes)]


def processes_of_caller() -> Sequence[str]:
    """The processes as which the caller loads vLLM's plugins. (Under ``python -m``, only its spec has its name.)"""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("vllm.plugins", __package__, __name__):
        frame = frame.f_back
    return ASKED_BY.get(getattr(frame.f_globals.get("__spec__"), "name", ""), tiers.PROCESSES)


def hooks() -> list[Hook]:
    """All hooks, whichever tiers are on."""
    return [entry.hook() for entry in ENTRIES]


def join_vllms_log() -> None:
    """Send our log lines to vLLM's log, with its handlers, format and level, unless our logger is configured.

    vLLM sets up its own logger after it loads plugins, so there are no handlers to copy here.
    """
    ours = logging.getLogger("dotllm")
    if not ours.handlers and ours.level == logging.NOTSET:
        ours.parent = logging.getLogger("vllm")


@functools.cache
def fault(entry: Entry) -> str:
    """Apply a hook, once per process. Returns why it does not hold, "" if it does."""
    try:
        entry.hook().apply()
    except Exception as error:  # an unknown version of vLLM may raise anything
        logger.debug("hook %s", entry.name, exc_info=True)
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ""


def apply_all(processes: Sequence[str] = tiers.PROCESSES) -> dict[Entry, str]:
    """Apply every hook for ``processes``, even if others fail. Returns the `fault` of each."""
    return {entry: fault(entry) for entry in entries(processes)}


def apply_required(processes: Sequence[str] = tiers.PROCESSES) -> None:
    """Apply every hook for ``processes``. If a hook does not hold, raise if it is required, and warn otherwise."""
    for entry, reason in apply_all(processes).items():
        if reason:
            _tell(entry, reason)


@functools.cache
def _tell(entry: Entry, reason: str) -> None:
    """Raise if the hook is required, each time; else warn, once."""
    message = f"dotllm hook {entry.name!r} does not hold on this vLLM ({reason})"
    required, without_it = is_required(entry)
    if required:
        raise HookError(f"{message}: {without_it}")
    logger.warning("%s: %s", message, without_it)


def is_required(entry: Entry) -> tuple[bool, str]:
    """Whether a server must not start without a hook, and what is lost without it. If its module cannot be imported, a
    hook of the tier enforce counts as required."""
    try:
        return entry.hook().required, entry.hook().without_it
    except Exception:
        return entry.tier == ENFORCE, "it cannot be imported"


HOOK = Hook(
    summary="a process gets the hooks of each of its roles, even of one that begins after plugins were loaded",
    required=True,
    without_it="nothing would be constrained where a front end is also an engine core, or an engine core a worker",
)


@HOOK.replaces("vllm.plugins:load_general_plugins")
def _load_general_plugins(*, original: Original) -> None:
    original()
    apply_required(processes_of_caller())
