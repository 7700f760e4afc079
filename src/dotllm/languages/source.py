"""The text of a grammar somebody wrote, and where in it something stands."""

from __future__ import annotations

from dotllm.errors import InvalidSpec, Unsupported


class Source:
    """Turns offsets into "line 3, column 7", which is the ``pointer`` of the errors about grammars."""

    def __init__(self, text: str) -> None:
        self.text = text

    def pointer(self, at: int) -> str:
        line = self.text.count("\n", 0, at) + 1
        return f"line {line}, column {at - (self.text.rfind(chr(10), 0, at) + 1) + 1}"

    def invalid(self, message: str, at: int, keyword: str = "") -> InvalidSpec:
        return InvalidSpec(message, pointer=self.pointer(at), keyword=keyword)

    def unsupported(self, message: str, at: int, keyword: str) -> Unsupported:
        return Unsupported(message, pointer=self.pointer(at), keyword=keyword)
