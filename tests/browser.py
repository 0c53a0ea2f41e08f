"""A real browser for the tests of pages: Chromium, headless, driven by Playwright.

Debian, Ubuntu: `apt-get install chromium`. Where there is none the test that asked is skipped with that line, or fails
with it where CI is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")

# Nothing of the browser's own may reach for the network while a test counts requests.
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; each test opens contexts and pages of its own in it."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = f"no browser found ({', '.join(NAMES)}); install one (Debian, Ubuntu: apt-get install chromium)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        yield browser
        browser.close()
