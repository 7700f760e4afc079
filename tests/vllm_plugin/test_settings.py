"""Variables of the environment where no command line of dotllm's has read them, as under ``vllm serve``."""

from __future__ import annotations

import logging

import pytest

from dotllm.vllm_plugin import register, settings


@pytest.fixture(autouse=True)
def _dotllms_log_reaches_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """`registry.join_vllms_log` gives our logger another parent."""
    monkeypatch.setattr(logging.getLogger("dotllm"), "parent", logging.getLogger())


@pytest.mark.parametrize("variable", sorted({*settings.VALUES, "DOTLLM_HOOKS"}))
def test_a_wrong_value_stops_the_start(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server started, and constrained requests failed because of their server's variable."""
    pytest.importorskip("vllm")
    monkeypatch.setenv(variable, "perhaps")
    with pytest.raises(ValueError, match=f"^{variable}='perhaps'"):
        register()


def test_a_wrong_value_of_compilation_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    monkeypatch.setenv("DOTLLM_COMPILE_TIMEOUT", "soon")
    with pytest.raises(ValueError, match=r"^DOTLLM_COMPILE_TIMEOUT: 'soon' is not a time"):
        register()


def test_an_unknown_variable_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings.check({"DOTLLM_COALESENCE": "canonical", "DOTLLM_SPEED": "high", "VLLM_X": "1", "DOTLLM_STORE": ""})
    assert [record.getMessage() for record in caplog.records] == [
        'there is no variable DOTLLM_COALESENCE; did you mean "DOTLLM_COALESCENCE"?',
        "there is no variable DOTLLM_SPEED; `dotllm serve --help` lists dotllm's",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_variables_that_kubernetes_makes_of_a_service_are_nobodys_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """Of the services dotllm and dotllm-store, as in deploy/kubernetes."""
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8000_TCP", "PORT_8000_TCP_PROTO")
    settings.check({f"{service}_{name}": "x" for service in ("DOTLLM", "DOTLLM_STORE") for name in names})
    assert not caplog.records
