"""The vLLM releases that this dotllm supports; the error for older ones says what to install."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm.vllm_plugin import register, releases
from dotllm.vllm_plugin.hook import HookError


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1+cpu", "0.33.0", "0.34.0rc1", "1.0", "0.1.dev1+g0123456", "dev"])
def test_these_two_and_what_comes_after_them(version: str) -> None:
    assert releases.too_old(version) == ""


@pytest.mark.parametrize(("version", "last"), [("0.31.9", "6560128"), ("0.26.0+cpu", "6560128"), ("0.9", "no dotllm")])
def test_an_older_one(version: str, last: str) -> None:
    said = releases.too_old(version)
    assert "0.32 and 0.33" in said and f"vLLM {version} is installed" in said and last in said


def test_no_process_of_an_older_vllm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm_version: Any = pytest.importorskip("vllm.version")
    monkeypatch.setattr(vllm_version, "__version__", "0.31.0")
    with pytest.raises(HookError, match="the last dotllm"):
        register()
