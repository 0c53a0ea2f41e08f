"""Draws docs/images/demo.png: the demo's page after a question and a drawing, from a real browser.

Run it from a checkout under a Python that has the demo, pytest, Playwright and a Chromium (that of `make vllm` does).
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from demo_app.environment import prepare_process  # noqa: E402

prepare_process()

from PIL import Image  # noqa: E402

from demo_app.command import engines, parser  # noqa: E402
from demo_app.page import layout  # noqa: E402
from demo_app.page.examples import PAIR  # noqa: E402
from demo_app.training.shapes import draw  # noqa: E402
from tests.browser import chromium  # noqa: E402
from tests.demo_app.visit import visit  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "demo.png"
SIZE = {"width": 1200, "height": 800}
COLOURS = 128


def shot() -> bytes:
    """The page as a PNG."""
    page = layout.build(*engines(parser().parse_args([])))
    _, address, _ = layout.launch(page, "127.0.0.1", 0, prevent_thread_lock=True)
    with TemporaryDirectory() as folder, chromium() as browser, visit(browser, address, viewport=SIZE) as person:
        file = Path(folder, "shapes.png")
        draw(PAIR, 160).save(file)
        person.ready()
        person.upload(file)
        person.ask("What do you see?")
        person.answered(1)
        person.draw("a yellow star on a black background")
        person.drawings.wait_for()
        person.page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
        person.page.wait_for_timeout(1500)  # what fades has faded
        return person.page.screenshot()


if __name__ == "__main__":
    image = Image.open(io.BytesIO(shot())).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
