"""The inspector's HTTP server, the snapshot, and the command."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from dotllm.cli import inspect
from dotllm.inspector.inspector import MOST_BYTES
from dotllm.inspector.server import InspectorServer

BODY = json.dumps({"kind": "regex", "text": "[0-9]{4}-x", "document": "2026"})


def ask(
    server: InspectorServer, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, str, str]:
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, response.headers["Content-Type"], response.read().decode()


def test_the_page_and_a_question(server: InspectorServer) -> None:
    status, kind, text = ask(server, "GET", server.path)
    assert status == 200 and kind.startswith("text/html") and text.endswith("</html>\n")
    assert "/* data */" not in text and "/* inspector.js */" not in text
    status, kind, text = ask(server, "POST", f"{server.path}api/walk", BODY)
    assert status == 200 and kind == "application/json" and json.loads(text)["bad"] is None


def test_nothing_is_said_without_the_secret(server: InspectorServer) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/x/"),
        ("POST", "/api/walk"),
    ):
        assert ask(server, method, path, BODY if method == "POST" else None)[0] == 404
    assert server.server_address[0] == "127.0.0.1"


def test_bad_requests(server: InspectorServer) -> None:
    assert ask(server, "POST", f"{server.path}api/nothing", BODY)[0] == 400
    assert ask(server, "POST", f"{server.path}api/walk", "{")[0] == 400
    assert ask(server, "POST", f"{server.path}api/walk", "[" * 200_000)[0] == 400
    assert ask(server, "GET", f"{server.path}other")[0] == 400
    assert ask(server, "POST", f"{server.path}api/walk", "", **{"Content-Length": str(MOST_BYTES + 1)})[0] == 400


def test_a_snapshot_has_all_answers(tmp_path: Path) -> None:
    (tmp_path / "date.regex").write_text("[0-9]{2}-</script>\n")
    (tmp_path / "text").write_text("12-</scri")
    arguments = [
        str(tmp_path / "date.regex"),
        "--text",
        str(tmp_path / "text"),
        "--snapshot",
        str(tmp_path / "page.html"),
    ]
    assert inspect.main(arguments) == 0
    page = (tmp_path / "page.html").read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["answers"]["walk"]["bad"] is None and len(data["answers"]["position"]) == 10
    assert data["start"]["text"] == "[0-9]{2}-</script>\n"


def test_the_tokens_of_a_tokenizer(tmp_path: Path, demo_model: Path) -> None:
    (tmp_path / "word.regex").write_text("information")
    (tmp_path / "text").write_text("information")
    page = tmp_path / "page.html"
    arguments = [str(tmp_path / "word.regex"), "--text", str(tmp_path / "text"), "--snapshot", str(page)]
    assert inspect.main([*arguments, "--tokenizer", str(demo_model)]) == 0
    data = json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])
    steps = [step["text"] for step in data["answers"]["walk"]["steps"]]
    assert len(steps) < len("information") and "".join(steps) == "information"


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for arguments in (
        [str(tmp_path / "none.json")],
        [str(tmp_path / "notes.txt")],
        ["--snapshot", str(tmp_path / "x")],
        ["--text", str(tmp_path / "notes.txt")],
    ):
        assert inspect.main([*arguments, "--no-open"]) == 2


def test_the_command_says_its_url(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dotllm", "inspect", "--no-open"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        connection.request("GET", parts.path)
        assert connection.getresponse().status == 200
    finally:
        process.terminate()
        process.wait()
