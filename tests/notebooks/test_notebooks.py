"""Every notebook, from a clean kernel: it shows what is committed, and works with other parameters and out of order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from codemods.rules import multi_head_attention
from docs import make_notebooks
from docs.make_notebooks import FOLDER, NOTEBOOKS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels import this checkout, wherever they run."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def shown(notebook: NotebookNode) -> str:
    """All that the cells show, as HTML."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the notebooks and the example, to write in."""
    shutil.copytree(FOLDER, tmp_path / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_fresh_run_shows_what_is_committed(name: str) -> None:
    fresh = make_notebooks.saved(make_notebooks.run(FOLDER / name))
    told = make_notebooks.difference(make_notebooks.read(FOLDER / name), fresh)
    assert not told, f"{name} is stale: run `python docs/make_notebooks.py {name}`; see {told}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_committed_is_small_and_says_nothing_of_a_machine(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert not [word for word in (str(ROOT), str(Path.home()), "widget-view", "/tmp/") if word in text]
    notebook = make_notebooks.read(FOLDER / name)
    assert make_notebooks.saved(notebook) == notebook
    assert not [out for cell in notebook.cells for out in cell.get("outputs", ()) if out.output_type == "error"]


@pytest.mark.parametrize("name", NOTEBOOKS[1:])
def test_the_first_code_cell_holds_the_parameters(name: str) -> None:
    code = [cell for cell in make_notebooks.read(FOLDER / name).cells if cell.cell_type == "code"]
    assert [cell for cell in code if "parameters" in cell.metadata.get("tags", ())] == code[:1]


def test_a_change_of_what_is_shown_is_seen() -> None:
    kept = make_notebooks.read(FOLDER / "01_migrate_a_model.ipynb")
    fresh = nbformat.from_dict(kept)
    cell = next(cell for cell in fresh.cells if cell.get("outputs"))
    cell.outputs[0].data["text/html"] += "!"
    assert "kept:" in make_notebooks.difference(kept, fresh)


def test_what_varies_is_named_in_its_place() -> None:
    html = "<td><!--varies-->CPU, 17.3 ms<!--/varies--></td>"
    output = nbformat.v4.new_output("display_data", data={"text/html": html, make_notebooks.WIDGET: {}})
    cell = nbformat.v4.new_code_cell("x", outputs=[output])
    (kept,) = make_notebooks.saved(nbformat.v4.new_notebook(cells=[cell])).cells[0].outputs
    assert kept.data == {"text/html": "<td><!--varies-->shown when you run this<!--/varies--></td>"}


# -- other parameters ------------------------------------------------------------------------------------------------

# A file of which a part is refused.
POOLING = next(example.before for example in multi_head_attention.RULE.examples if example.refused)


def test_another_model_for_another_target_is_migrated(checkout: Path) -> None:
    (checkout / "pooling.py").write_text(POOLING, encoding="utf-8")
    done = papermill.execute_notebook(
        FOLDER / "01_migrate_a_model.ipynb",
        None,
        {"MODELS": "pooling.py", "TARGET": "0.28", "LEFT_OUT": ["VA701"]},
        cwd=checkout,
        progress_bar=False,
    )
    html = shown(done)
    assert "What a port to vLLM 0.28.0 changes" in html
    assert "Pooling may be cross-attention" in html
    assert "Left out: VA701" in html


def papermill_as_documented(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """The command of the guide, with other values for parameters and in the environment."""
    (line,) = re.findall(r"^VITPORT_UNATTENDED=1 papermill .*$", (ROOT / "docs/notebooks.md").read_text(), re.M)
    _, _, *words = shlex.split(line)
    for name, value in given.items():
        words[words.index(name) + 1] = value
    command = [sys.executable, "-m", "papermill", *words, "--no-progress-bar", "--cwd", str(folder)]
    environment = {**os.environ, "VITPORT_UNATTENDED": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_command_of_the_guide_migrates_a_file(checkout: Path) -> None:
    (checkout / "models").mkdir()
    (checkout / "models" / "vision.py").write_text(POOLING, encoding="utf-8")
    done = papermill_as_documented(checkout)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "What a port to vLLM 0.28.0 changes" in shown(nbformat.read(checkout / "ported.ipynb", as_version=4))


@pytest.mark.parametrize(("name", "value", "why"), [("MODELS", "nowhere", "no such file"), ("TARGET", "9.9", "9.9")])
def test_unattended_a_step_that_cannot_be_done_is_an_error(checkout: Path, name: str, value: str, why: str) -> None:
    (checkout / "models").mkdir()
    (checkout / "models" / "vision.py").write_text(POOLING, encoding="utf-8")
    done = papermill_as_documented(checkout, **{name: value})
    assert done.returncode == 1
    assert why in done.stderr[-600:]  # the end of a traceback


def test_another_model_is_checked_as_far_as_was_asked(checkout: Path) -> None:
    shutil.copy2(ROOT / "examples/orchard_vl_plugin/orchard_vl/attention.py", checkout / "attention.py")
    done = papermill.execute_notebook(
        FOLDER / "02_check_on_your_device.ipynb",
        None,
        {"MODELS": "attention.py", "DEVICE": "cpu", "LEVELS": ["static"], "DTYPES": []},
        cwd=checkout,
        progress_bar=False,
    )
    html = shown(done)
    assert "no fault found: 1 passed" in html
    assert "no tower of these models was built: ask for the level build, above" in html
    assert (checkout / "build/ported/attention.py.check.html").exists()


def test_another_shared_attention_is_tried_without_pictures(checkout: Path) -> None:
    text = (ROOT / "examples/shared_attention/shared_attention.py").read_text(encoding="utf-8")
    (checkout / "mine.py").write_text(text.replace("heads_of_this_rank", "swap_heads"), encoding="utf-8")
    done = papermill.execute_notebook(
        FOLDER / "03_text_to_image_across_devices.ipynb",
        None,
        {"MODELS": "mine.py", "TARGET": "0.28", "PIPELINE": ""},
        cwd=checkout,
        progress_bar=False,
    )
    assert "before: 1 of 3 pass, after: 3 of 3 pass" in shown(done)


# -- out of order, twice ---------------------------------------------------------------------------------------------


class Kernel:
    """A notebook whose cells are run one by one."""

    def __init__(self, name: str, folder: Path) -> None:
        self.notebook = make_notebooks.read(FOLDER / name)
        self._client = NotebookClient(self.notebook, timeout=300, resources={"metadata": {"path": str(folder)}})

    def run(self, tells: str) -> str:
        """What the cell with this text shows, as HTML; an error is no exception."""
        code = [(i, cell) for i, cell in enumerate(self.notebook.cells) if cell.cell_type == "code"]
        index, cell = next((i, cell) for i, cell in code if tells in cell.source)
        with contextlib.suppress(CellExecutionError):
            self._client.execute_cell(cell, index)
        return shown(nbformat.v4.new_notebook(cells=[cell]))

    def __enter__(self) -> Kernel:
        self._client.create_kernel_manager()
        self._client.start_new_kernel()
        self._client.start_new_kernel_client()
        return self

    def __exit__(self, *_: object) -> None:
        self._client._cleanup_kernel()


ENDLESS = """\
from porting.widgets.kernel import long_step
from porting.widgets.panel import Panel
from porting.widgets.work import Work

class Endless(Panel):
    def __init__(self):
        self.work = Work("Waiting")
        super().__init__([self.work.widget])
        self.work.start(self.go_on, ())

    def go_on(self, progress):
        while True:
            progress(0, 1)

    def story(self):
        return self.work.story()

    def plain(self):
        return self.work.said

await long_step(Endless)()
"""


def test_an_interrupt_of_the_kernel_is_a_stop(checkout: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ENDLESS)])
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(checkout)}})

    def interrupt(cell: NotebookNode, cell_index: int) -> None:
        threading.Timer(5, lambda: asyncio.run(client.km.interrupt_kernel())).start()

    client.on_cell_execute = interrupt
    client.execute()  # raises where the interrupt is an error of the cell
    assert "Stopped. What was there before is still there." in shown(notebook)


def test_cells_out_of_order_and_twice(checkout: Path) -> None:
    with Kernel("01_migrate_a_model.ipynb", checkout / "notebooks") as kernel:
        assert "run the cell that picks a model, above" in kernel.run("migrating.findings()")
        assert "MODELS is not set: run the first cell" in kernel.run("migrating.pick(")
        kernel.run("MODELS =")
        assert "3 rewritten" in kernel.run("migrating.pick(")
        for _ in range(2):
            assert "ported in build/ported/orchard_vl_plugin" in kernel.run("migrating.write(")
    assert (checkout / "build/ported/orchard_vl_plugin/pyproject.toml").exists()
