"""The list of all hooks, and applying them once per process."""

from __future__ import annotations

import functools
import logging

from dotllm.vllm_plugin import metrics
from dotllm.vllm_plugin.engine_core import batch_accept, compile_hook, draft_limit, errors, pending_grammars, warm_start
from dotllm.vllm_plugin.frontend import (
    beam_search,
    config,
    endpoints,
    engine_info,
    inspector,
    unsupported_fields,
    validation,
)
from dotllm.vllm_plugin.frontend.tool_calls import argument_types, constraints
from dotllm.vllm_plugin.gpu_masks import manager_hook
from dotllm.vllm_plugin.hook import Hook, HookError
from dotllm.vllm_plugin.jump_forward import jump_forward
from dotllm.vllm_plugin.workarounds import cpu_drafts, cpu_kernels, cpu_seeds

logger = logging.getLogger(__name__)

HOOKS: tuple[Hook, ...] = (
    config.HOOK,
    validation.HOOK,
    compile_hook.HOOK,
    beam_search.HOOK,
    engine_info.HOOK,
    endpoints.HOOK,
    unsupported_fields.HOOK,
    inspector.HOOK,
    constraints.HOOK,
    argument_types.HOOK,
    pending_grammars.HOOK,
    errors.HOOK,
    warm_start.HOOK,
    manager_hook.HOOK,
    draft_limit.HOOK,  # drops drafts before the next one validates them
    batch_accept.HOOK,
    jump_forward.HOOK,  # asks the grammars what is forced behind the tokens they took
    cpu_drafts.HOOK,
    cpu_kernels.HOOK,
    cpu_seeds.HOOK,
    metrics.HOOK,
)


def join_vllms_log() -> None:
    """Our log lines in vLLM's log, with its handlers, format and level, unless somebody has configured ours.

    vLLM sets up its own logger later than it loads plugins (it parses the command line first), so to copy its handlers
    here would copy nothing.
    """
    ours = logging.getLogger("dotllm")
    if not ours.handlers and ours.level == logging.NOTSET:
        ours.parent = logging.getLogger("vllm")


@functools.cache
def apply_all() -> dict[Hook, str]:
    """Apply every hook, whatever becomes of the others; why it does not hold, "" if it does. Runs once per process."""
    faults = dict.fromkeys(HOOKS, "")
    for hook in HOOKS:
        try:
            hook.apply()
        except Exception as error:  # whatever a foreign version of vLLM makes of it
            logger.debug("hook %s", hook.name, exc_info=True)
            faults[hook] = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return faults


def apply_required() -> None:
    """Apply every hook; raise for a required one that does not hold, warn about the others."""
    for hook, fault in apply_all().items():
        if not fault:
            continue
        message = f"dotllm hook {hook.name!r} does not hold on this vLLM ({fault})"
        if hook.required:
            raise HookError(f"{message}: {hook.without_it}")
        logger.warning("%s: %s", message, hook.without_it)
