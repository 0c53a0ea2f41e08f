"""The notebooks in JupyterLab, in a real browser: opened, run, clicked. Pictures stay in `build/screenshots/`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
from tests.browser import chromium  # noqa: E402
from tests.notebooks.lab import Lab, lab  # noqa: E402


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
