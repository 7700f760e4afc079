"""What tests of servers ask of vLLM's release, so that they run on all that are supported (`make test-release`)."""

from __future__ import annotations

import pytest
from packaging.version import Version

from dotllm.cli.vllm_metadata import vllm_version

INSTALLED = Version(vllm_version() or "0").release


def before(release: str) -> bool:
    """Whether the installed vLLM is older."""
    return Version(release).release > INSTALLED


def since(release: str, otherwise: str) -> pytest.MarkDecorator:
    """Marks what an older vLLM cannot do; ``otherwise`` says what it does."""
    return pytest.mark.skipif(before(release), reason=f"vLLM before {release} {otherwise}")
