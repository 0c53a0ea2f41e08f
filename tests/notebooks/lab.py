"""JupyterLab as a person has it: a server on loopback, over a copy of the notebooks, and pages of a real browser."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"  # to be looked at, kept as artefacts
START_S = 120
CELL_MS = 600_000
expect.set_options(timeout=120_000)  # milliseconds; machines that test are busy
QUIET = ("--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.extension_manager=readonly")
NO_NEWS = '{"fetchNews": "false", "checkForUpdates": false}'


@dataclass(frozen=True)
class Lab:
    """A running server. `folder` is what it serves: `notebooks/` to be edited at will, and the example."""

    url: str
    token: str
    folder: Path

    def open(self, browser: Browser, name: str, dark: bool = False) -> Opened:
        """A notebook on a page of its own."""
        page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        page.goto(f"{self.url}/lab/tree/notebooks/{name}?token={self.token}&reset")
        expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=CELL_MS)
        opened = Opened(page)
        if dark:
            opened.menu("Settings", "Theme", "JupyterLab Dark")
        return opened


@dataclass(frozen=True)
class Opened:
    """A notebook in the browser."""

    page: Page

    def menu(self, *path: str) -> None:
        """Click through the menu bar."""
        top, *rest = path
        self.page.locator(".lm-MenuBar-itemLabel", has_text=top).first.click()
        for name in rest:
            self.page.locator(".lm-Menu-item", has=self.page.get_by_text(name, exact=True)).last.click()

    def run_all(self, wait: bool = True) -> None:
        """Run all cells, and wait for the last."""
        expect(self.page.locator("#jp-main-statusbar")).to_contain_text("(ipykernel) | Idle", timeout=CELL_MS)
        self.menu("Run", "Run All Cells")
        if wait:
            self.wait()

    def wait(self) -> None:
        """Until no cell waits or runs."""
        self.page.wait_for_timeout(1000)
        self.page.wait_for_function(
            "() => ![...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('[*]'))",
            timeout=CELL_MS,
        )

    def cell(self, tells: str) -> Locator:
        """The code cell whose source has this text."""
        return self.page.locator(".jp-CodeCell", has=self.page.locator(".jp-InputArea", has_text=tells))

    def shoot(self, name: str, of: Locator | None = None) -> Path:
        """A picture below `build/screenshots/`."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        (of or self.page).screenshot(path=path)
        return path


@contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """A server over a copy of the notebooks in an empty folder; it keeps its own files there too."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    (folder / "examples").symlink_to(ROOT / "examples")
    own = folder / ".jupyter"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    places = {f"JUPYTER_{name}_DIR": str(own / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    places |= {f"JUPYTERLAB_{name}_DIR": str(own / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", *QUIET]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}", "--ServerApp.port_retries=0"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    notification = own / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    notification.parent.mkdir(parents=True)
    notification.write_text(NO_NEWS)
    with (own / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **places, "PYTHONPATH": str(ROOT)}, cwd=folder
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/api/status?token={token}", server, own / "log")
            yield Lab(url, token, folder)
        finally:
            server.terminate()
            server.wait()


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.3)
    raise RuntimeError(f"JupyterLab does not answer: {log.read_text(errors='replace')[-1000:]}")
