"""The page in a headless Chromium: what a user sees and does, with mouse and keyboard. Skipped without Chromium."""

from __future__ import annotations

import functools
import json
import math
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dotllm import Vocabulary
from dotllm.compilation import Specification
from dotllm.inspector import inspector
from dotllm.inspector.confidence import Place
from dotllm.inspector.inspector import Inspector
from dotllm.inspector.server import InspectorServer, snapshot
from dotllm.inspector.server import page as page_of

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium in PATH (Debian: apt install chromium)")
SCHEMA = '{\n "type": "object",\n "properties": {"age": {"type": "integer", "maximum": 130}},\n "required": ["age"]\n}'
START = {"kind": "json_schema", "text": SCHEMA, "options": {}, "document": '{"age":131}'}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def page(browser: Any, server: InspectorServer) -> Iterator[Any]:
    """The page, which must report no errors."""
    server.start = START
    opened = browser.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.goto(server.url)
    status(opened, "Does not fit: token")
    yield opened
    opened.close()
    assert faults == []


def status(page: Any, text: str) -> None:
    sync_api.expect(page.locator("#status")).to_contain_text(text)


def write_specification(page: Any, text: str) -> None:
    page.locator("#spec .cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def test_the_token_that_does_not_fit(page: Any) -> None:
    assert page.locator("#chips .bad").inner_text() == "1"
    sync_api.expect(page.locator("#position h3")).to_contain_text("In the place of token")
    assert "/age, in a number" in page.locator("#position").inner_text()
    assert "the end of the object" in page.locator("#position").inner_text()
    assert page.locator("#outline .here").inner_text().startswith("age integer")


def test_why_it_does_not_fit(page: Any) -> None:
    sync_api.expect(page.locator("#why")).to_contain_text("maximum")
    sync_api.expect(page.locator(".cm-lintRange-warning")).to_have_text('"maximum": 130')
    page.fill("#document", '{"age":1}')
    sync_api.expect(page.locator("#why")).to_be_hidden()
    assert page.locator(".cm-lintRange-warning").count() == 0


def test_a_text_is_written_and_an_example_clicked(page: Any) -> None:
    page.fill("#document", '{"age":1')
    status(page, "Fits so far")
    page.locator("#position button", has_text="}").first.click()
    status(page, "Fits")
    assert page.input_value("#document") == '{"age":1}'


def test_the_keyboard_moves_between_tokens(page: Any) -> None:
    page.locator("#chips .bad").click()
    page.keyboard.press("Home")
    sync_api.expect(page.locator("#position h3")).to_contain_text("token 1,")
    page.keyboard.press("ArrowRight")
    sync_api.expect(page.locator("#position h3")).to_contain_text("token 2,")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert page.locator("#chips [tabindex='0']").count() == 1


def test_a_refusal_is_shown_in_its_line(page: Any) -> None:
    write_specification(page, SCHEMA.replace("integer", "intger"))
    status(page, "the specification is refused")
    sync_api.expect(page.locator(".cm-lintRange-error")).to_have_text('"type": "intger"')
    assert "line 3" in page.locator("#refusal").inner_text()
    write_specification(page, '{\n "type": }')
    sync_api.expect(page.locator("#refusal")).to_contain_text("line 2")


def test_options_change_what_fits(page: Any) -> None:
    page.fill("#document", '{"age": 1}')
    status(page, "Fits")
    page.select_option("#whitespace", "none")
    status(page, "Does not fit")
    page.fill("#document", '{"age":  1}')
    page.select_option("#whitespace", "any")
    status(page, "Fits")
    page.select_option("#whitespace", "formatted")
    status(page, "Does not fit")
    page.select_option("#kind", "regex")
    sync_api.expect(page.locator("#options[disabled]")).to_have_count(1)


def test_a_sample_is_inspected(page: Any) -> None:
    page.locator("#samples button").first.click()
    status(page, "Fits, and is complete.")


def test_the_address_holds_what_is_shown(page: Any, browser: Any) -> None:
    page.fill("#document", '{"age":7}')
    status(page, "Fits, and is complete.")
    other = browser.new_page()
    other.goto(page.url)
    status(other, "Fits, and is complete.")
    assert other.input_value("#document") == '{"age":7}'
    other.close()


def test_every_control_has_a_name(page: Any) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, textarea, [role]")].filter((element) =>
            !element.closest("[hidden], .cm-editor") && !element.labels?.length && !element.innerText?.trim() &&
            !element.getAttribute("aria-label") && element.type !== "hidden").map((element) => element.outerHTML)"""
    )
    assert nameless == []


def test_text_is_never_markup(page: Any) -> None:
    write_specification(page, json.dumps({"enum": ["<img src=x onerror=alert(1)>"], "title": "</script>"}))
    page.fill("#document", '"<img src')
    status(page, "Fits so far")
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red + green + blue > 380) == (scheme == "light")


def test_a_snapshot_needs_no_server(browser: Any, inspector: Inspector, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(snapshot(inspector, START), encoding="utf-8")
    opened = browser.new_page()
    opened.goto((tmp_path / "page.html").as_uri())
    status(opened, "Does not fit: token")
    opened.locator(".chip").first.click()
    sync_api.expect(opened.locator("#position h3")).to_contain_text("token 1,")
    assert opened.locator("#document").is_disabled() and opened.locator("#samples li").count() == 3
    opened.close()


def test_a_request_is_followed(browser: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: OrderedDict[str, inspector.Live] = OrderedDict()
    live = inspector.LiveInspector(vocabulary, "", requests)
    monkeypatch.setattr("dotllm.inspector.server.page", functools.partial(page_of, live=True))
    schema = '{"type": "array", "items": {"type": "boolean"}, "maxItems": 1}'
    inspector.begin(requests, "a", inspector.Live(Specification.create("json_schema", schema), list))
    half = math.log(0.5)
    inspector.take(requests, "a", list(b"["), None, [Place(math.log(0.75), {ord("["): 0.0})])
    with InspectorServer(live) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        opened = browser.new_page()
        opened.goto(server.url)
        opened.locator("#requests button").click()
        status(opened, "Fits so far")
        opened.locator("#chips .chip").first.click()
        sync_api.expect(opened.locator("#position")).to_contain_text("the mask took 25 % of the model")
        first = Place(0.0, {ord("t"): half, ord("f"): half})
        inspector.take(
            requests, "a", [*b"true]", 271], "stop", [first, *(Place(0.0, {n: 0.0}) for n in [*b"rue]", 271])]
        )
        status(opened, "Fits, and is complete.")
        sync_api.expect(opened.locator("#document")).to_have_value("[true]")
        assert '\n  "maxItems": 1' in opened.evaluate("editor.state.doc.toString()")
        opened.locator("#chips .chip").nth(1).click()
        sync_api.expect(opened.locator("#position")).to_contain_text("false 50 %")
        sync_api.expect(opened.locator("#outline em").first).to_contain_text("likely")
        opened.fill("#document", "[false]")
        sync_api.expect(opened.locator("#position")).not_to_contain_text("50 %")
        opened.close()
        server.shutdown()
