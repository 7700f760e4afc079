"""Compilation off the request path: one manager per engine; caches in memory, on disk and in a shared store.

    manager = CompilationManager(vocabulary)                      # options from DOTLLM_… variables, or given
    ticket = manager.submit(Specification.create("regex", "a+"))  # a concurrent.futures.Future; never blocks
    guide = ticket.result().guide()

Plugins pass ``transform=`` to `submit` to get what they need from the ticket. See docs/compilation.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dotllm.exports import exports

if TYPE_CHECKING:
    from dotllm.compilation.compiled import Compiled
    from dotllm.compilation.jobs import Ticket
    from dotllm.compilation.manager import CompilationManager
    from dotllm.compilation.options import CompilationOptions
    from dotllm.compilation.specification import Kind, Specification

__all__ = ["CompilationManager", "CompilationOptions", "Compiled", "Kind", "Specification", "Ticket"]

__getattr__, __dir__ = exports(
    __name__,
    compiled="Compiled",
    jobs="Ticket",
    manager="CompilationManager",
    options="CompilationOptions",
    specification="Kind Specification",
)
