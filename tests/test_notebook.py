"""Notebooks: the code cells are one module; all but the sources of changed cells keeps its bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from codemods import vllm_api
from codemods.findings import FileReport
from codemods.notebook import Notebook, NotebookError, cell_of
from codemods.run import Options, migrate

TOWER = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class Tower(nn.Module):
    def __init__(self, heads: int, size: int, attn_backend_override=None) -> None:
        super().__init__()
        self.qkv = nn.Linear(heads * size, 3 * heads * size)
        self.attn = MultiHeadAttention(heads, size, size**-0.5)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)
"""

OLD = "from vllm.attention.layer import Attention"
NEW = "from vllm.model_executor.layers.attention import Attention"


def code(*lines: str, **more: Any) -> dict[str, Any]:
    source = [f"{line}\n" for line in lines[:-1]] + list(lines[-1:])
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": source, **more}


def prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": [text]}


def notebook(*cells: dict[str, Any], language: str = "python") -> dict[str, Any]:
    kernel = {"display_name": "Python 3", "language": language, "name": "python3"}
    return {"cells": list(cells), "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def port(path: Path, content: dict[str, Any] | str, target: str = "0.32") -> FileReport:
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n")
    (report,) = migrate([path], Options(target=vllm_api.resolve(target))).files
    return report


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "demo.ipynb"


def test_an_import_in_one_cell_serves_the_others(book: Path) -> None:
    report = port(book, notebook(code(OLD), prose(OLD), code("kind = Attention", "kind")))
    assert sources(book) == [NEW, OLD, "kind = Attention\nkind"]
    assert [(r.cell, r.line, r.code) for r in report.rewrites] == [(1, 1, "VA601")]


def test_a_name_that_changes_changes_in_every_cell(book: Path) -> None:
    lines = (
        "class Encoder(nn.Module):",
        "    def __init__(self, heads: int, size: int) -> None:",
        "        super().__init__()",
        "        self.qkv = nn.Linear(heads * size, 3 * heads * size)",
        "        self.attn = MultiHeadAttention(heads, size, size**-0.5)",
        "",
        "    def forward(self, x):",
        "        q, k, v = self.qkv(x).chunk(3, dim=-1)",
        "        return self.attn(q, k, v)",
    )
    first = code("from torch import nn", "from vllm.attention.layer import MultiHeadAttention")
    port(book, notebook(first, code(*lines)))
    assert sources(book) == [
        "from torch import nn\nfrom vllm.model_executor.layers.attention import MMEncoderAttention",
        "\n".join(lines).replace("MultiHeadAttention", "MMEncoderAttention"),
    ]


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda book: json.dumps(book, indent=1) + "\n", id="as Jupyter writes it"),
        pytest.param(lambda book: json.dumps(book, indent=4, sort_keys=True), id="indented by four, no final newline"),
        pytest.param(lambda book: json.dumps(book), id="on one line"),
        pytest.param(lambda book: json.dumps(book, indent=1, ensure_ascii=False) + "\n", id="with letters as they are"),
        pytest.param(lambda book: json.dumps(book, indent="\t").replace("\n", "\r\n"), id="tabs and CRLF"),
    ],
)
def test_all_but_the_changed_line_keeps_its_bytes(layout: Any, book: Path) -> None:
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["größer /\u00e9\n"]}]
    text = layout(notebook(prose("# Größe"), code("# Größe", OLD, "kind = Attention", outputs=outputs), code("1 + 1")))
    book.write_bytes(text.encode())
    migrate([book], Options(target="0.32.0"))
    assert book.read_bytes().decode() == text.replace(OLD, NEW)


def test_a_source_that_is_one_string_stays_one(book: Path) -> None:
    port(book, notebook({**code(""), "source": f"{OLD}\nkind = Attention\n"}))
    (cell,) = json.loads(book.read_text())["cells"]
    assert cell["source"] == f"{NEW}\nkind = Attention\n"


class TestLinesThatAreNotPython:
    LINES = (
        "%load_ext autoreload",
        "!pip install vllm \\",
        "    --quiet",
        "files = !ls",
        "Attention?",
        "if files:",
        "    %time kind = Attention",
        "await start(kind)",
    )

    def test_come_back_as_they_were(self, book: Path) -> None:
        port(book, notebook(code(OLD, *self.LINES)))
        assert sources(book) == ["\n".join([NEW, *self.LINES])]

    def test_count_as_readers_of_a_name(self, book: Path) -> None:
        text = notebook(
            code("import vllm", "from vllm.config import VllmConfig"),
            code("if vllm.__version__ == '0.12.0':", "    size = VllmConfig", "else:", "    size = None"),
            code("%timeit VllmConfig()"),
        )
        port(book, text)
        assert sources(book) == ["from vllm.config import VllmConfig", "size = None", "%timeit VllmConfig()"]

    def test_that_use_what_changes_keep_the_notebook_as_it_was(self, book: Path) -> None:
        cells = notebook(
            code("import vllm.attention.layer as layer"), code("kind = layer.Attention"), code("%time layer.Attention")
        )
        report = port(book, cells)
        assert sources(book) == [
            "import vllm.attention.layer as layer",
            "kind = layer.Attention",
            "%time layer.Attention",
        ]
        assert [f.code for f in report.findings] == ["VA900"]

    def test_in_a_string_are_part_of_it(self, book: Path) -> None:
        lines = (OLD, 'print("""', "%d times", "!", '""")')
        port(book, notebook(code(*lines)))
        assert sources(book) == ["\n".join([NEW, *lines[1:]])]

    def test_a_timed_cell_is_python_below_its_first_line(self, book: Path) -> None:
        port(book, notebook(code("%%time", OLD, "kind = Attention")))
        assert sources(book) == [f"%%time\n{NEW}\nkind = Attention"]


def test_cells_of_other_languages_are_left_alone(book: Path) -> None:
    shell, broken = code("%%bash", "pip install vllm"), code("%%writefile model.py", OLD)
    report = port(book, notebook(shell, broken, code("print(")))
    assert [(f.severity.value, f.cell) for f in report.findings] == [("warning", 2)]
    assert "not plain Python" in report.findings[0].message
    assert not report.changed


def test_a_notebook_of_another_language_is_left_alone(book: Path) -> None:
    assert not port(book, notebook(code(OLD), language="julia")).changed


def test_a_finding_names_the_cell_and_the_line_in_it(book: Path) -> None:
    report = port(book, notebook(prose("vllm"), code("import os", "", "from vllm.config import no_such_thing")))
    assert [(f.cell, f.line, f.column) for f in report.findings] == [(2, 3, 25)]


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ('{"worksheets": ["vllm"]}', "format 4"), ("[]", "format 4")]
)
def test_what_is_no_notebook_is_one_error(text: str, message: str, book: Path) -> None:
    report = port(book, text)
    assert message in (report.error or "")
    assert book.read_text() == text


@pytest.mark.parametrize("source", [5, None, {}, ["import vllm", 5], [["import vllm"]]])
def test_a_source_that_is_no_text_is_the_error_of_its_file_alone(source: Any, tmp_path: Path) -> None:
    for name, last in (("bad", source), ("good", OLD)):
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(notebook(code(OLD), {**code(), "source": last})))
    bad, good = migrate([tmp_path], Options("0.32.0")).files
    assert (bad.error or "").endswith(
        "bad.ipynb: cannot be read: the source of cell 2 is no text; save it anew with Jupyter"
    )
    assert good.changed


@pytest.mark.parametrize(
    "metadata", [None, 5, [], {"kernelspec": "python"}, {"language_info": [], "kernelspec": {"language": 5}}]
)
def test_metadata_of_any_form_is_read(metadata: Any, book: Path) -> None:
    assert port(book, json.dumps({**notebook(code(OLD)), "metadata": metadata})).error is None


def test_of_two_members_with_one_key_the_later_counts(book: Path) -> None:
    text = json.dumps(notebook(code(OLD))).replace('"source": [', '"source": 5, "source": [')
    port(book, text.replace('{"cells": [', '{"cells": 5, "cells": [', 1))
    assert book.read_text() == text.replace('{"cells": [', '{"cells": 5, "cells": [', 1).replace(OLD, NEW)


def test_a_message_names_places_by_cell_too(book: Path) -> None:
    make = code("def make(more):", "    return Tower(**more)")
    report = port(book, notebook(prose("# A tower"), code(*TOWER.splitlines()), make))
    (finding,) = [f for f in report.findings if f.code == "VA401"]
    assert (finding.cell, finding.line) == (2, 6)
    assert "arguments are passed on as a whole at demo.ipynb:cell 3:2" in finding.message


def test_a_patch_says_which_line_of_which_cell_fails(book: Path) -> None:
    lines = ("from vllm.attention import layer", "layer.check_upstream_fa_availability = None")
    report = port(book, notebook(code("x = 1", "", "y = 2"), code("", lines[0]), code(lines[1])))
    (finding,) = [f for f in report.findings if f.code == "VA660"]
    assert (finding.cell, finding.line) == (3, 1)
    assert "the import in cell 2, line 2 fails" in finding.message


def test_every_cell_keeps_its_place_in_the_text() -> None:
    book = Notebook(json.dumps(notebook(code("a = 1", "b = 2"), prose("x"), code("%lsmagic"), code("c = 3"))))
    lines = book.code.split("\n")
    assert [book.place(lines.index(text) + 1) for text in ("a = 1", "b = 2", "c = 3")] == [(1, 1), (1, 2), (4, 1)]
    heads = {start - 1 for start, _ in book.starts}
    for number in set(range(1, len(lines))) - heads:
        assert cell_of(lines, number) == book.place(number)
    assert book.with_code(book.code) == book.text


def test_a_cell_that_got_lost_is_an_error() -> None:
    book = Notebook(json.dumps(notebook(code("a = 1"), code("b = 2"))))
    with pytest.raises(NotebookError, match="a cell got lost"):
        book.with_code("a = 1\nb = 2\n")


def test_the_result_is_a_valid_notebook(book: Path) -> None:
    cells = [code(OLD, "kind = Attention", id="a"), {**prose("text"), "id": "b"}, code(id="c")]
    port(book, notebook(*cells))
    nbformat.validate(nbformat.read(book, as_version=4))


def test_the_command_finds_notebooks_and_prints_a_patch(tmp_path: Path) -> None:
    (tmp_path / ".ipynb_checkpoints").mkdir()
    text = json.dumps(notebook(code(OLD, "kind = Attention")), indent=1)
    for folder in (tmp_path, tmp_path / ".ipynb_checkpoints"):
        (folder / "demo.ipynb").write_text(text)
    command = [sys.executable, "-m", "codemods.migrate", "--diff", str(tmp_path), "--target", "0.32", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    changed = [line for line in done.stdout.splitlines() if line.startswith(("-  ", "+  "))]
    assert changed == [f'-    "{OLD}\\n",', f'+    "{NEW}\\n",']
    assert done.returncode == 1
