"""Our headers on an answer: ``x-dotllm-warnings``, and ``Retry-After``.

`warn` adds a text to the answer to the current request, in any API: about a keyword without effect, or a forced call
that is not enforced. The header is a JSON array of these texts. A stream has it, too; an answer without warnings has
none. So a text must be added before the answer's first byte. Without headers (``run-batch``), it is logged once.

A 503 of ours has ``Retry-After`` (`retry_later`): too many specifications wait, or no compile process is alive.

A context variable leads to the headers of a request: each task that serves the request has a copy of the context, with
the same object in it.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dotllm.compilation import Specification
from dotllm.vllm_plugin import settings
from dotllm.vllm_plugin.hook import Hook, Original

logger = logging.getLogger(__name__)

HEADER = "x-dotllm-warnings"
RETRY_AFTER_S = 2
"""A compile process starts in a second, and a queue shrinks to half in a moment."""
MOST_CHARACTERS = 300
"""The limit of one text."""
MOST_BYTES = 2048
"""The limit of the header: proxies allow 4 to 8 KiB for all headers of an answer."""

HOOK = Hook(
    summary=f"the header {HEADER} of an answer names the parts of its request without effect; a 503 has Retry-After",
    without_it="answers do not say which keywords of a schema have no effect, and a 503 does not say when to try again",
)


@dataclass
class _Headers:
    texts: list[str] = field(default_factory=list)
    retry: bool = False

    def fields(self) -> list[tuple[bytes, bytes]]:
        """The headers in ASGI's form."""
        warnings = [(HEADER.encode(), header(self.texts).encode())] if self.texts else []
        return [*warnings, (b"retry-after", str(RETRY_AFTER_S).encode())] if self.retry else warnings


_headers: ContextVar[_Headers | None] = ContextVar("dotllm_headers", default=None)
_imported: dict[str, Any] = {}


def warn(message: str) -> None:
    """Add ``message`` to the warnings of the request that this context serves. Equal texts are added once."""
    headers = _headers.get()
    if settings.value(settings.WARNINGS) == "off":
        return
    if headers is None:
        _log(message)
    elif message not in headers.texts:
        headers.texts.append(message)


def retry_later() -> None:
    """Tell the client to try again: the answer to the current request is a 503."""
    if headers := _headers.get():
        headers.retry = True


async def warn_of(specification: Specification, located: Callable[[str], str]) -> None:
    """`warn` about what `spec_warnings` finds in ``specification``. ``located`` adds a text's place."""
    if settings.value(settings.WARNINGS) == "on":
        # On a thread, because its kernels may still be loading; by importlib, which waits for an import that has begun.
        name = "dotllm.compilation.spec_warnings"
        spec_warnings: Any = _imported.get(name) or await asyncio.to_thread(importlib.import_module, name)
        for text in await _imported.setdefault(name, spec_warnings).texts_beside(specification):
            warn(located(text))


@functools.lru_cache(maxsize=1024)
def _log(message: str) -> None:
    logger.warning("dotllm: %s", message)


def header(texts: list[str]) -> str:
    """``texts`` as JSON in printable ASCII, of at most `MOST_BYTES`; what is left out is counted."""
    short = [text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…" for text in texts]
    for kept in range(len(short), -1, -1):
        more = [f"and {len(short) - kept} more"] if kept < len(short) else []
        value = json.dumps([*short[:kept], *more]).replace("\x7f", "\\u007f")
        if len(value) <= MOST_BYTES:
            break
    return value


class Middleware:
    """ASGI middleware that puts the headers into the answer."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _Headers()

        def send_with_headers(message: Any) -> Awaitable[None]:
            if message["type"] == "http.response.start" and (fields := headers.fields()):
                message = {**message, "headers": [*message.get("headers", ()), *fields]}
            return send(message)

        before = _headers.set(headers)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            _headers.reset(before)


@HOOK.replaces("vllm.plugins.endpoint_plugins.interface:attach_endpoint_plugins")
def _attach_endpoint_plugins(app: Any, supported_tasks: Any, *, original: Original) -> None:
    original(app, supported_tasks)
    app.add_middleware(Middleware)
