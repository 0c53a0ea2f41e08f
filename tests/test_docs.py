"""The pages for people: their commands run and print what is shown, their links lead somewhere, what is made is fresh.

Blocks of `sh` hold commands. Blocks of `console` hold commands behind `$` and all that they print, where a line of
`...` stands for any lines. The commands of a page run in order in a copy of the project, and each block finds the
example plugin in `models/`, as it is before it is ported. A comment right above a block changes that:

    <!-- file: NAME -->         the block is written to that file before the page's commands run
    <!-- run by: PATH::NAME --> takes minutes or a network: that test runs it, here nothing does
    <!-- run by: PATH -->       likewise, where PATH is a script that holds the commands themselves
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from codemods import rule_pages, vllm_api
from porting.levels import LEVELS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
LINKING = (*PAGES, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/README.md")))

# What a copy of the project needs for the commands of its pages.
PARTS = ("LICENSE", "Makefile", "README.md", "codemods", "docs", "examples", "porting", "pyproject.toml")

# Commands that may be run here: offline, done in seconds, and without effect outside the folder they run in.
SAFE = re.compile(
    r"(?:vitport(?:-check)?|python -m codemods\.(?:migrate|rule_pages|what_breaks)|python docs/make_picture\.py)(?: |$)"
)
SAFE_TOO = re.compile(r"(?:make migrate|pip install \.|git apply|git diff --no-index|grep|zcat)(?: |$)")

# Commands whose exit code says that there is something to do.
FINDING = {"vitport", "vitport-check", "codemods.migrate", "codemods.what_breaks"}

BLOCK = re.compile(
    r"(?:^ *<!-- (?P<mark>file|run by): (?P<value>\S+) -->\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.M | re.S,
)
LINK = re.compile(r"\[[^]]*\]\((?P<link>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with what a comment above it says."""

    language: str
    text: str
    mark: str | None
    value: str

    def commands(self) -> Iterator[tuple[str, str | None]]:
        """Each command, and what it must print; None where the page does not show it."""
        if self.language == "sh":
            for line in self.text.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    yield line, None
        elif self.language == "console":
            before, *sessions = re.split(r"^\$ ", self.text, flags=re.M)
            assert not before, "a console block starts with `$ ` and a command; commands alone are an sh block"
            for session in sessions:
                command, _, output = session.partition("\n")
                yield command, output


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    return [
        Block(found["language"], dedent(found["text"]), found["mark"], found["value"] or "")
        for found in BLOCK.finditer(text_of(page))
    ]


# -- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pip, in which what vitport needs is found without a network."""
    folder = tmp_path_factory.mktemp("docs") / "venv"
    venv.create(folder)
    python = folder / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [path for path in sys.path if path.endswith("-packages")]
    Path(found.stdout.strip(), "ours.pth").write_text("\n".join(ours) + "\n", encoding="utf-8")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{python}" -m pip "$@"\n', encoding="utf-8")
    pip.chmod(0o755)
    return folder


@pytest.fixture
def reader(environment: Path, tmp_path: Path) -> Iterator[Reader]:
    """Somebody with a checkout of the project in which vitport is installed."""
    checkout = tmp_path / "vitport"
    checkout.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / part, checkout / part)
    (checkout / ".venv").symlink_to(environment)
    (environment / ".base").touch()  # for make: vitport is installed, newer than pyproject.toml
    reader = Reader(checkout)
    if not (environment / "bin" / "vitport").exists():
        reader.run("pip install .")
    yield reader
    shutil.rmtree(checkout)


class Reader:
    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout

    def write(self, block: Block) -> None:
        (self.checkout / block.value).write_text(block.text, encoding="utf-8")

    def start_over(self) -> None:
        """Put the example plugin into `models/`, as it is before it is ported."""
        models = self.checkout / "models"
        shutil.rmtree(models, ignore_errors=True)
        shutil.copytree(self.checkout / "examples" / "orchard_vl_plugin" / "orchard_vl", models)

    def run(self, command: str, expected: str | None = None) -> str:
        """Run a command; it must succeed and print what is expected. Findings and changes are no failure."""
        words = command.split()
        if shutil.which(words[0]) is None and words[0] not in ("pip", "python", "vitport", "vitport-check"):
            pytest.skip(f"{words[0]} is not installed")
        variables = {
            **os.environ,
            "PATH": f"{self.checkout / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "MAKEFLAGS": "",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # a switch of pip's that is on when its value is off
            "PIP_NO_INDEX": "1",
        }
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.checkout,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode in ((0, 1) if FINDING & set(words) else (0,)), (
            f"$ {command}\n{done.stdout}exit code {done.returncode}"
        )
        if expected is not None:
            assert doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS), (
                f"$ {command}\nprints\n{done.stdout}and not\n{expected}"
            )
        return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, reader: Reader) -> None:
    found = blocks(page)
    for block in found:
        if block.mark == "file":
            reader.write(block)
    for block in found:
        if block.mark is None:
            reader.start_over()
            for command, expected in block.commands():
                assert SAFE.match(command) or SAFE_TOO.match(command), (
                    f"{page} shows `{command}`, which no test runs: name one in a comment above the block"
                )
                reader.run(command, expected)


@pytest.mark.parametrize("page", PAGES)
def test_a_test_or_script_runs_the_commands_that_are_not_run_here(page: str) -> None:
    for block in blocks(page):
        if block.mark == "run by":
            path, _, name = block.value.partition("::")
            source = text_of(path)
            if name:
                defined = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
                assert name in defined, f"{page}: there is no test {block.value}"
            else:
                lines = {line.strip() for line in source.splitlines()}
                missing = [command for command, _ in block.commands() if command not in lines]
                assert not missing, f"{page}: {path} does not run {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_shell_blocks_say_whether_they_show_output(page: str) -> None:
    assert {block.language for block in blocks(page)}.isdisjoint({"bash", "shell", "zsh"})


def test_goals_of_make_exist() -> None:
    named = {goal for page in PAGES for goal in re.findall(r"\bmake ([a-z]+)`", text_of(page))}
    goals = set(re.findall(r"^\.PHONY: (.*)$", text_of("Makefile"), re.M)[0].split())
    assert named
    assert named <= goals


def test_the_pre_commit_example_is_a_hook_of_this_repository(reader: Reader) -> None:
    (example,) = (yaml.safe_load(block.text) for block in blocks("README.md") if block.language == "yaml")
    (repository,) = example["repos"]
    (hook,) = repository["hooks"]
    (offered,) = (offer for offer in yaml.safe_load(text_of(".pre-commit-hooks.yaml")) if offer["id"] == hook["id"])
    reader.start_over()
    shown = reader.run(" ".join([offered["entry"], *hook["args"]]))
    assert "models/attention.py: would be rewritten" in shown


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_new_code_imports_what_the_newest_vllm_has(page: str) -> None:
    """Blocks of Python that are no input of a command show how to write for a later vLLM."""
    newest = vllm_api.Api.of(vllm_api.resolve("latest"))
    for block in blocks(page):
        if block.language == "python" and block.mark is None:
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vllm":
                    assert all(newest.has(node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_somewhere(page: str) -> None:
    for found in LINK.finditer(BLOCK.sub("", text_of(page))):
        place, _, heading = found["link"].partition("#")
        if re.match(r"[a-z]+:", place):
            continue
        target = (ROOT / page).parent / place if place else ROOT / page
        assert target.exists(), f"{page} links to {found['link']}"
        if heading:
            assert heading in anchors(target.read_text(encoding="utf-8")), f"{page} links to {found['link']}"


def anchors(text: str) -> set[str]:
    """The anchors that code hosts give the headings of a page."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(BLOCK.sub("", text)))
    return {title.replace(" ", "-") for title in titles}


def test_every_page_is_linked_from_the_index() -> None:
    linked = {found["link"] for found in LINK.finditer(text_of("docs/README.md"))}
    assert {Path(page).name for page in PAGES} - {"README.md"} <= linked


def test_the_page_of_the_command_names_every_option_and_no_other(reader: Reader) -> None:
    shown = set(re.findall(r"--[a-z][a-z-]+", reader.run("vitport --help"))) - {"--help"}
    assert set(re.findall(r"`(--[a-z][a-z-]+)", text_of("docs/command.md"))) == shown


def test_the_page_of_the_check_names_every_option_and_level_and_no_other(reader: Reader) -> None:
    page = text_of("docs/checking.md")
    shown = set(re.findall(r"--[a-z][a-z-]+", reader.run("vitport-check --help"))) - {"--help"}
    assert set(re.findall(r"`(--[a-z][a-z-]+)", page)) == shown
    assert re.findall(r"^\| (\w+) \| (.*\?) \|$", page, re.M) == [(level.name, level.question) for level in LEVELS]


def test_rooms_know_whom_the_architecture_page_lets_them_know() -> None:
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", text_of("docs/architecture.md").partition("may know whom")[2], re.M)
    assert rows
    for rooms, friends in rows:
        ours, allowed = names(rooms), names(friends) | names(rooms)
        for path in modules(ours):
            known = {name for name in imported(path) if not any(name.startswith(friend) for friend in allowed)}
            assert not known, f"{path.relative_to(ROOT)} imports {sorted(known)}"


def names(cell: str) -> set[str]:
    return {f"codemods.{name.removesuffix('/').removesuffix('.py')}" for name in re.findall(r"`([\w/.]+)`", cell)}


def modules(rooms: set[str]) -> Iterator[Path]:
    for room in rooms:
        path = ROOT / room.replace(".", "/")
        yield from sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imported(path: Path) -> Iterator[str]:
    """Modules of codemods that a file imports, at its top or later; what only type checkers read is left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unread = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in unread and node.module:
            if node.module == "codemods":
                yield from (f"codemods.{alias.name}" for alias in node.names if alias.name != "__version__")
            elif node.module.startswith("codemods."):
                yield node.module


# -- what is made ----------------------------------------------------------------------------------------------------


def test_the_pages_of_the_rules_are_fresh() -> None:
    assert rule_pages.main(["--check", str(ROOT / "docs" / "rules")]) == 0


@pytest.mark.parametrize("program", ["make_picture.py", "make_faults.py"])
def test_what_a_program_makes_is_fresh(program: str) -> None:
    done = subprocess.run(
        [sys.executable, f"docs/{program}", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
