"""The vLLM releases that dotllm plugs into: always the two newest.

vLLM makes a release every two weeks, and most releases move hooked functions, so each further supported release costs
branches in code and days of tests. Users of an older vLLM keep the dotllm that was made for it.
"""

from __future__ import annotations

SUPPORTED = ("0.32", "0.33")

LAST = (("0.26", "commit 6560128 of 0.1.0 (for vLLM 0.26 to 0.33)"),)
"""For each range of older releases, its first release and the last dotllm for it; newest first."""


def is_since(release: str, version: str | None = None) -> bool:
    """Whether vLLM ``version`` (none given: the installed one) is ``release`` or later. A version that cannot be
    compared (a build without its own version) counts as later."""
    from packaging.version import InvalidVersion, Version

    if version is None:
        from vllm.version import __version__

        version = __version__
    try:
        parsed = Version(version)
    except InvalidVersion:
        return True
    return parsed.release >= Version(release).release or (parsed.is_devrelease and parsed.release[:2] == (0, 1))


def too_old(version: str) -> str:
    """Why vLLM ``version`` is too old for this dotllm, and which dotllm fits it; "" if it is not too old."""
    if is_since(SUPPORTED[0], version):
        return ""
    last = next((dotllm for first, dotllm in LAST if is_since(first, version)), None)
    advice = f"the last dotllm for it is {last}" if last else "no dotllm was made for it"
    return f"this dotllm supports vLLM {' and '.join(SUPPORTED)}, but vLLM {version} is installed: {advice}"
