"""The notebooks in JupyterLab, in a real browser: opened, run, clicked. Pictures stay in `build/screenshots/`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import chromium
from tests.notebooks.lab import CELL_MS, Lab, lab


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_model_is_migrated_by_clicks(jupyter: Lab, browser: Browser, dark: bool) -> None:
    opened = jupyter.open(browser, "01_migrate_a_model.ipynb", dark)
    opened.run_all()
    changes = opened.cell("side_by_side()")
    changes.get_by_label("File").select_option("orchard_vl/vision.py")
    expect(changes.locator("caption")).to_have_text("orchard_vl/vision.py")
    why = changes.locator("summary", has_text="VA305")
    why.focus()
    opened.page.keyboard.press("Enter")
    expect(changes.locator("details[open]")).to_contain_text("Follows vLLM")
    opened.shoot(f"01-changes-{'dark' if dark else 'light'}", changes)
    if dark:
        return

    pick = opened.cell("migrating.pick(")
    pick.get_by_label("To vLLM").select_option("0.13.0")
    pick.get_by_role("button", name="Look").click()
    expect(opened.cell("migrating.findings()")).to_contain_text("What a port to vLLM 0.13.0 changes")
    expect(pick).to_contain_text("for vLLM 0.13.0: files")  # said last: all panels are as they will stay

    rules = opened.cell("migrating.rules()")
    rules.get_by_label("VA701").uncheck()
    expect(rules).to_contain_text("Left out: VA701")

    write = opened.cell("migrating.write(")
    ported = jupyter.folder / "build" / "ported" / "orchard_vl_plugin" / "orchard_vl" / "attention.py"
    write.get_by_role("button", name="Write").click()
    expect(write).to_contain_text("ported in build/ported/orchard_vl_plugin")
    assert "import torch.nn.functional as F" in ported.read_text(encoding="utf-8")  # which VA701 would take away
    write.get_by_role("button", name="Undo").click()
    expect(write).to_contain_text("is taken away")
    assert not ported.exists()
    opened.shoot("01-whole")


def test_a_port_is_proved_live(jupyter: Lab, browser: Browser) -> None:
    opened = jupyter.open(browser, "02_check_on_your_device.ipynb")
    opened.run_all(wait=False)
    matrix = opened.cell("checking.matrix(")
    expect(matrix.get_by_title("vision static: pass")).to_be_visible(timeout=CELL_MS)
    opened.wait()
    for row in ("static", "load", "build fp32", "parity fp32", "paths flash fp32", "paths npu fp32"):
        expect(matrix.get_by_title(f"vision {row}: pass")).to_have_class(re.compile(r"\bpassed\b"))
    expect(matrix.get_by_title("model build fp32: not run")).not_to_have_class(re.compile(r"\bpassed\b"))
    matrix.get_by_title("vision parity fp32: pass").click()
    expect(matrix.locator("h4")).to_have_text("vision, parity fp32")
    expect(matrix).to_contain_text("attention error")
    opened.shoot("02-matrix", matrix)
    opened.shoot("02-errors", opened.cell("checking.errors("))
    opened.shoot("02-cost", opened.cell("checking.cost("))
    expect(opened.cell("checking.results()").get_by_label("Text")).to_have_value(re.compile("## Test Result"))
    assert (jupyter.folder / "build" / "ported" / "orchard_vl_plugin.check.html").exists()


def test_a_check_is_stopped_and_begun_again(jupyter: Lab, browser: Browser) -> None:
    opened = jupyter.open(browser, "02_check_on_your_device.ipynb")
    opened.run_all(wait=False)
    matrix = opened.cell("checking.matrix(")
    expect(matrix.get_by_title("vision static: pass")).to_be_visible(timeout=CELL_MS)
    matrix.get_by_role("button", name="Stop").click()
    stopped = re.compile(r"Stopped: \d+ of \d+ questions were answered\. No process is left\.")
    expect(matrix).to_contain_text(stopped, timeout=CELL_MS)
    opened.wait()  # the cells below it say a line each, or do their own
    expect(matrix.get_by_title("vision static: pass")).to_have_class(re.compile(r"\bpassed\b"))
    expect(opened.cell("checking.results()")).to_contain_text("nothing is checked yet: run the cell with")
    matrix.get_by_role("button", name="Check again").click()
    expect(matrix.get_by_title("vision parity fp32: pass")).to_be_visible(timeout=CELL_MS)
