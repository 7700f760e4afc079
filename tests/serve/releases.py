"""What tests of servers ask of vLLM's release, so that they run on both that are supported (`make test-sources`)."""

from __future__ import annotations

from packaging.version import Version

from dotllm.cli.vllm_metadata import vllm_version

INSTALLED = Version(vllm_version() or "0").release


def before(release: str) -> bool:
    """Whether the installed vLLM is older."""
    return Version(release).release > INSTALLED
