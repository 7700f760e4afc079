"""StepPhases: compiles begin beside the forward pass, not beside the code that launches it.

A new request wakes the engine's loop, which puts a step together and launches it: about a millisecond of Python. Its
compile is Python, too, and would begin at the same time on a thread: whoever has the GIL keeps it for up to 5 ms
(`sys.getswitchinterval`), so the step was launched when the compile was nearly over. A moment later the loop only waits
for the model, and a compile is in nobody's way. (A compile in another process never is; see
`CompilationManager.spare_the_loop`.)
"""

from __future__ import annotations

from dotllm.compilation import CompilationManager

# A step is launched in half of this. Should none be, the compile does not wait for it any longer.
LONGEST_PAUSE_S = 0.02


class StepPhases:
    """Whether the engine's loop waits for the model. Requests come in on one thread, steps run on another; attribute
    reads and writes are single bytecodes, and a stale read costs a compile one `LONGEST_PAUSE_S` at most."""

    def __init__(self) -> None:
        self._in_flight = False

    def request_arrives(self, compiler: CompilationManager) -> None:
        """A request is about to submit its specification."""
        if not self._in_flight and not compiler.begins_elsewhere():
            compiler.pause(LONGEST_PAUSE_S)

    def launched(self, compiler: CompilationManager) -> None:
        """The forward pass of a step is on its way."""
        self._in_flight = True
        compiler.resume()

    def landed(self) -> None:
        """Its results are there."""
        self._in_flight = False
