"""Pictures of the inspector on its five examples, for docs/inspector.md.

python -m tools.inspector_pictures TOKENIZER [FOLDER]         # TOKENIZER: a folder or hub name; Chromium in PATH
"""

from __future__ import annotations

import io
import shutil
import sys
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from transformers import AutoTokenizer

from dotllm import Vocabulary
from dotllm.inspector.inspector import Inspector
from dotllm.inspector.server import InspectorServer

# name: (number of the example, colours)
PICTURES = {
    "tool-call": (0, "light"),
    "nested-object": (1, "light"),
    "regex": (2, "dark"),
    "grammar": (3, "dark"),
    "unsatisfiable": (4, "light"),
}


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(sys.argv[2] if len(sys.argv) == 3 else Path(__file__).parent.parent / "docs" / "images")
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(sys.argv[1]))
    with InspectorServer(Inspector(vocabulary, Path(sys.argv[1]).name)) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (number, scheme) in PICTURES.items():
            page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme=scheme)
            page.goto(server.url)
            page.wait_for_load_state("networkidle")
            page.select_option("#example", str(number))
            page.wait_for_timeout(1000)
            page.wait_for_load_state("networkidle")
            picture = Image.open(io.BytesIO(page.screenshot(full_page=True)))
            picture.quantize(128).save(folder / f"inspector-{name}.png", optimize=True)
            page.close()
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
