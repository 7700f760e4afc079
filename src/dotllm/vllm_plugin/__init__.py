"""Plugs dotllm into vLLM. vLLM is imported only inside functions and in modules that hooks import.

``register`` is the ``vllm.general_plugins`` entry point: vLLM calls it in each of its processes (front ends, engine
core, workers) before it builds anything. Every change to vLLM is a `hook.Hook` in a file of its own, listed in
`registry`; docs/vllm.md says what each one does, and why at that point.
"""

from __future__ import annotations


def register() -> None:
    """Apply the hooks for this process. Idempotent.

    Raises:
        ValueError: a ``DOTLLM_…`` variable has a wrong value.
        dotllm.vllm_plugin.hook.HookError: this vLLM is too old, or does not fit a required hook.
    """
    from vllm.version import __version__

    from dotllm.vllm_plugin import releases
    from dotllm.vllm_plugin.hook import HookError

    fault = releases.too_old(__version__)
    if fault:
        raise HookError(fault)
    from dotllm.vllm_plugin import registry, settings, tiers

    registry.join_vllms_log()
    processes = registry.processes_of_caller()
    if tiers.FRONT_END in processes:
        settings.check()
    registry.apply_required(processes)
