"""Differences between vLLM's releases, so that server tests run on both supported ones (`make test-sources`)."""

from __future__ import annotations

from packaging.version import Version

from dotllm.cli.vllm_metadata import vllm_version

INSTALLED = Version(vllm_version() or "0").release


def before(release: str) -> bool:
    """Whether the installed vLLM is older than ``release``."""
    return Version(release).release > INSTALLED
