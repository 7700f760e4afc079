"""Plugs dotllm into vLLM, which is imported only inside functions or in modules that a hook imports.

``register`` is the ``vllm.general_plugins`` entry point: vLLM calls it in each of its processes (front ends, engine
core, workers) before it builds anything. Every change to vLLM is a `hook.Hook` in a file of its own, listed in
`registry`; docs/vllm.md says what each does and why there.
"""

from __future__ import annotations


def register() -> None:
    """Apply all hooks in this process. Idempotent.

    Raises:
        dotllm.vllm_plugin.hook.HookError: this vLLM is too old, or a hook without which constraints would not be
        enforced does not fit it.
    """
    from vllm.version import __version__

    from dotllm.vllm_plugin import releases
    from dotllm.vllm_plugin.hook import HookError

    fault = releases.too_old(__version__)
    if fault:
        raise HookError(fault)
    from dotllm.vllm_plugin import registry

    registry.join_vllms_log()
    registry.apply_required()
