"""The command from outside: exit codes, streams, flags, and what bad input does to a run (one clear line, no harm)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from codemods import __version__, vllm_api
from codemods.findings import FileReport, Report
from codemods.migrate import main
from codemods.rules import RULES
from codemods.run import Options
from codemods.source_file import SourceFile
from tests.reports.sample import FAILED, REFUSED, REWRITTEN, UNTOUCHED

ROOT = Path(__file__).parents[1]
LATEST = vllm_api.releases()[-1]
FULL = Path("/dev/full")

# What the command is for: MultiHeadAttention becomes MMEncoderAttention.
OLD = """\
from torch import nn

from vllm.attention.layer import MultiHeadAttention


class Attention(nn.Module):
    def __init__(self, heads: int, size: int, prefix: str = "") -> None:
        super().__init__()
        self.qkv = nn.Linear(heads * size, 3 * heads * size)
        self.attn = MultiHeadAttention(heads, size, size**-0.5)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)
"""

# What a program must not decide: the keys come from elsewhere, so their lengths may differ from the queries'.
CROSS = OLD.replace("forward(self, x)", "forward(self, x, y)").replace(
    "return self.attn(q, k, v)", "return self.attn(q, *self.qkv(y).chunk(3, dim=-1)[1:])"
)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str, program: Sequence[str] = ("-m", "codemods.migrate")) -> subprocess.CompletedProcess[str]:
    """The real command, in its own process, started in the current folder."""
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8",
        timeout=120,
    )


def port(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command("--target", "0.20", *arguments)


def write(name: str, content: str | bytes = OLD) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ported(raw: bytes) -> bool:
    return b"MMEncoderAttention(" in raw and b"MultiHeadAttention" not in raw


class TestExitCodes:
    def test_0_when_everything_is_ported(self) -> None:
        path = write("m/a.py")
        done = port("m")
        assert (done.returncode, done.stderr) == (0, "")
        assert ported(path.read_bytes())

    def test_0_and_not_touched_when_there_is_nothing_to_do(self) -> None:
        path = write("m/a.py")
        port("m")
        before = path.stat()
        assert port("m").returncode == 0
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)

    def test_1_when_findings_remain(self) -> None:
        path = write("m/a.py", CROSS)
        done = port("m")
        assert done.returncode == 1
        assert "m/a.py:14:16: error" in done.stdout
        assert path.read_text() == CROSS

    @pytest.mark.parametrize("flag", ["--check", "--diff"])
    def test_1_and_nothing_written_when_files_would_change(self, flag: str) -> None:
        path = write("m/a.py")
        assert port(flag, "m").returncode == 1
        assert path.read_text() == OLD
        port("m")
        assert port(flag, "m").returncode == 0

    def test_2_when_a_file_fails_and_the_others_go_on(self) -> None:
        write("m/bad.py", OLD + "def broken(:\n")
        good = write("m/good.py")
        assert port("m").returncode == 2
        assert ported(good.read_bytes())

    def test_2_for_a_fault_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr("codemods.run.migrate", fail)
        assert main(["m"]) == 2
        *trace, last = capsys.readouterr().err.splitlines()
        assert trace[-1] == "RuntimeError: a bug"
        assert last == "vitport: broke off, which is a fault of vitport; every file is whole"

    def test_2_for_bad_usage(self) -> None:
        assert command("--no-such-flag").returncode == 2


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ([], "give at least one file or folder"),
            (["", "--target", "0.32"], "an empty PATH was given; name a file or a folder"),
            (["--target", "0.12", "m"], "vLLM 0.12"),
            (["--target", "9.9", "m"], "vLLM 9.9 is not in the index"),
            (["--target", "new", "m"], "'new' is not a vLLM release"),
            (["--source", "0.14", "--target", "0.13", "m"], "is newer than the target"),
            (["--source", "old", "m"], "'old' is not a vLLM release"),
            (["--report", "r.html", "m"], "'r.html' names no form of report; end it in .json or .sarif or .md"),
            (["--report", "gone/r.json", "m"], "the folder of 'gone/r.json' does not exist"),
            (["--jobs", "0", "m"], "'0' is not a number of processes"),
            (["--jobs", "two", "m"], "'two' is not a number of processes"),
            (
                ["--select", "ZZ999", "m"],
                "argument --select: no rule has the code 'ZZ999'; --list-rules names them all",
            ),
            (["--ignore", f"{RULES[0].code},", "m"], "argument --ignore: no rule has the code ''"),
            (["--explain", "ZZ999"], "argument --explain: no rule has the code 'ZZ999'"),
            (["--ignore", "VA", "m"], "argument --ignore: with these, no rule that is asked for is left"),
            (["--select", "VA2", "--ignore", "VA2", "m"], "argument --ignore: with these, no rule that is asked for"),
            (["--select", "VA201", "--ignore", "VA202", "m"], "argument --ignore: with these, no rule that is asked"),
        ],
    )
    def test_a_mistake_is_one_line(
        self, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("codemods.run.migrate", None)  # no run may start
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        [line] = err.splitlines()
        assert line.startswith("vitport: ")
        assert says in line

    def test_a_code_with_a_slip_names_its_neighbours(self, capsys: pytest.CaptureFixture[str]) -> None:
        code = RULES[0].code
        with pytest.raises(SystemExit):
            main(["--explain", f"{code}0"])
        assert code in capsys.readouterr().err.partition("near:")[2]

    def test_a_rules_name_leads_to_its_code(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["--select", RULES[0].name, "m"])
        assert RULES[0].code in capsys.readouterr().err.partition("near:")[2]

    def test_the_beginning_of_codes_names_those(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["--explain", "va2"])
        assert "near: VA201, VA202 (" in capsys.readouterr().err

    def test_help_shows_every_exit_code(self) -> None:
        done = command("--help")
        assert done.returncode == 0
        codes = done.stdout.partition("exit codes:")[2].split("\n")
        assert [line.split()[0] for line in codes if line.strip()] == ["0", "1", "2", "130"]

    def test_every_flag_is_documented(self) -> None:
        text = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
        flags = {word.strip("[,") for word in command("--help").stdout.split() if word.startswith("--")} - {"--help"}
        assert len(flags) > 10
        assert {flag for flag in flags if f"`{flag}" not in text} == set()

    def test_version(self) -> None:
        assert command("--version").stdout == f"vitport {__version__}\n"

    def test_what_needs_no_rewriting_does_not_load_libcst_or_rich(self) -> None:
        write("m/a.py", "x = 1\n")
        script = """
            import sys
            from codemods.migrate import main
            for arguments in (["--help"], ["--list-rules"], ["m"]):
                try:
                    main(arguments)
                except SystemExit:
                    pass
            sys.exit(sorted({"libcst", "rich"} & set(sys.modules)) or 0)
        """
        assert command(program=("-c", textwrap.dedent(script))).returncode == 0


class TestRules:
    def test_list_rules_names_each_in_order(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--list-rules"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == [rule.code for rule in RULES]
        assert all(f"[{rule.safety}]" in line for rule, line in zip(RULES, lines, strict=True))

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
    def test_explain_prints_the_page(self, rule: Any, capsys: pytest.CaptureFixture[str]) -> None:
        from codemods.rule_pages import page

        assert main(["--explain", rule.code.lower()]) == 0
        assert capsys.readouterr().out == page(rule)


class TestOptions:
    """What a run is asked to do, seen from a run that only listens."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Options]:
        def ask(*arguments: str) -> Options:
            seen: list[Options] = []

            def listen(_: object, options: Options, __: object) -> Report:
                seen.append(options)
                return Report(options.target, (UNTOUCHED,))

            monkeypatch.setattr("codemods.run.migrate", listen)
            assert main([*arguments, "m"]) == 0
            [options] = seen
            return options

        return ask

    def test_nothing_said(self, asked: Callable[..., Options], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("codemods.vllm_api.installed", lambda: None)
        options = asked()
        assert options.jobs >= 1
        assert options == Options(target=LATEST, jobs=options.jobs)

    def test_everything_said(self, asked: Callable[..., Options]) -> None:
        first, second, *_ = (rule.code for rule in RULES)
        options = asked(
            *("--target", "0.14.0", "--source", "0.13.0", "--jobs", "3", "--keep-params", "--check"),
            *("--select", f"{first.lower()}, {second}", "--select", first[:2], "--ignore", second),
        )
        assert options == Options(
            target="0.14.0",
            source="0.13.0",
            write=False,
            jobs=3,
            select=frozenset({first, second, first[:2]}),
            ignore=frozenset({second}),
            keep_params=True,
        )

    @pytest.mark.parametrize("arguments", [(), ("--target", "installed")])
    def test_the_installed_vllm_is_the_target(
        self,
        arguments: tuple[str, ...],
        asked: Callable[..., Options],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr("codemods.vllm_api.installed", lambda: "0.14.0+cpu")
        assert asked(*arguments).target == "0.14.0"
        assert "target vLLM 0.14.0 (as installed here)" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("found", "arguments", "says"),
        [
            (None, ["--target", "installed"], "no vLLM is installed here"),
            ("99.0.0", [], "vLLM 99.0.0 is installed here, but"),
            ("0.12.0", [], "no MMEncoderAttention"),
        ],
    )
    def test_an_installed_vllm_that_is_no_target_is_said(
        self,
        found: str | None,
        arguments: list[str],
        says: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr("codemods.vllm_api.installed", lambda: found)
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "m"])
        assert ended.value.code == 2
        assert says in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("target", "why"),
        [(None, "the newest known; no vLLM is installed here"), ("latest", "the newest known"), ("0.14", "as given")],
    )
    def test_the_report_says_why_this_target(
        self,
        target: str | None,
        why: str,
        asked: Callable[..., Options],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr("codemods.vllm_api.installed", lambda: None)
        release = asked(*(["--target", target] if target else [])).target
        assert capsys.readouterr().out.splitlines()[0] == f"vitport {__version__}, target vLLM {release} ({why})"


class TestIgnoring:
    """A site counts as refused only where a finding says so."""

    GONE = "from vllm.attention.layer import check_upstream_fa_availability as check\n\nknown = check(None)\n"

    @pytest.mark.parametrize("ignored", ["VA601", "VA901", "VA601,VA901"])
    def test_what_is_counted_as_refused_is_told(self, ignored: str) -> None:
        write("m/a.py", self.GONE)
        port("--check", "m", "--ignore", ignored, "--report", "r.json")
        summary = json.loads(Path("r.json").read_text())["summary"]
        assert (summary["sites"]["refused"] > 0) == (summary["findings"] > 0) == (summary["exit_code"] == 1)


class TestTelling:
    """Which stream says what, for a run with a known outcome."""

    @pytest.fixture
    def outcome(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        def set_outcome(*files: FileReport) -> None:
            def run(_: object, options: Options, __: object) -> Report:
                return Report(options.target, files, dry_run=not options.write)

            monkeypatch.setattr("codemods.run.migrate", run)

        return set_outcome

    def test_report_on_stdout_errors_on_stderr(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        outcome(FAILED, REWRITTEN)
        assert main(["m"]) == 2
        out, err = capsys.readouterr()
        assert "models/done.py: rewritten" in out
        assert err == f"error: {FAILED.error}\n"

    def test_diff_has_stdout_for_itself(self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        write("models/done.py", "import a\n")
        outcome(REWRITTEN)
        assert main(["--diff", "m"]) == 1
        out, err = capsys.readouterr()
        assert out == "--- a/models/done.py\n+++ b/models/done.py\n@@ -1 +1 @@\n-import a\n+import b\n"
        assert "models/done.py: would be rewritten" in err

    def test_quiet_diff_is_the_patch_alone(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("models/done.py", "import a\n")
        outcome(REWRITTEN, REFUSED)
        assert main(["--diff", "--quiet", "m"]) == 1
        out, err = capsys.readouterr()
        assert out.startswith("--- a/models/done.py\n")
        assert err == ""

    def test_a_file_that_changed_before_its_diff_is_an_error(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("models/done.py", "import c\n")
        outcome(REWRITTEN)
        assert main(["--diff", "--quiet", "m"]) == 2
        assert capsys.readouterr().err.startswith("error: models/done.py: changed on disk")

    def test_quiet_says_nothing_when_nothing_is_left(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        outcome(REWRITTEN)
        assert main(["--quiet", "m"]) == 0
        assert capsys.readouterr() == ("", "")

    def test_quiet_keeps_findings_and_errors(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        outcome(REWRITTEN, REFUSED, FAILED)
        assert main(["--quiet", "m"]) == 2
        out, err = capsys.readouterr()
        assert [line.split(":")[0] for line in out.splitlines()] == ["models/refused.py", "    to do"]
        assert err == f"error: {FAILED.error}\n"

    def test_reports_are_written_beside(self, outcome: Callable[..., None]) -> None:
        outcome(REFUSED)
        assert main(["m", *(word for name in ("r.json", "r.sarif", "r.md") for word in ("--report", name))]) == 1
        assert json.loads(Path("r.json").read_text())["summary"]["exit_code"] == 1
        assert json.loads(Path("r.sarif").read_text())["version"] == "2.1.0"
        assert Path("r.md").read_text().startswith("# Port to vLLM ")

    def test_a_report_that_cannot_be_written_is_an_error(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("r.json").mkdir()
        outcome(UNTOUCHED)
        assert main(["m", "--report", "r.json"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("error: r.json: the report cannot be written: ")

    @pytest.mark.parametrize("order", [("r.json", "gone.json"), ("gone.json", "r.json")])
    def test_the_exit_code_that_is_told_is_the_one_there_is(
        self, order: tuple[str, str], outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("gone.json").mkdir()
        outcome(REFUSED)
        assert main(["m", *(word for name in order for word in ("--report", name))]) == 2
        told = capsys.readouterr().out.splitlines()[-1]
        assert told == "result    what is told could not all be written, see the error (exit code 2)"
        assert json.loads(Path("r.json").read_text())["summary"]["exit_code"] == 2

    @pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
    @pytest.mark.parametrize("arguments", [["--check", "m"], ["--diff", "--quiet", "m"], ["--list-rules"], ["--help"]])
    def test_an_output_that_is_full_is_one_line(self, arguments: list[str]) -> None:
        write("m/a.py")
        with FULL.open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "codemods.migrate", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                text=True,
            )
        assert done.returncode == 2
        assert done.stderr == "error: standard output cannot be written: no space left on device\n"

    @pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
    def test_an_error_stream_that_is_full_leaves_the_exit_code(self) -> None:
        write("m/a.py")
        with FULL.open("w") as full:
            program = [sys.executable, "-m", "codemods.migrate", "--check", "m", "gone"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(program, stdout=full, stderr=full, check=False, env=environment)
        assert done.returncode == 2

    def test_nothing_found_says_what_was_skipped(
        self, outcome: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        write("m/.hidden/a.py")
        outcome()
        assert main(["m"]) == 0
        assert capsys.readouterr().err == "vitport: no Python files in m; skipped m/.hidden (hidden)\n"

    def test_a_reader_that_goes_away_is_no_error(self) -> None:
        write("m/a.py")
        read, gone = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-m", "codemods.migrate", "--target", "0.20", "m"],
            stdout=gone,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        os.close(gone)
        assert (done.returncode, done.stderr) == (0, b"")
        assert ported(Path("m/a.py").read_bytes())

    def test_a_name_the_terminal_cannot_show_is_escaped(self) -> None:
        write("m/模型.py")
        done = command(
            *("--target", "0.20", "m"),
            program=(
                "-c",
                "import sys; sys.stdout.reconfigure(encoding='ascii'); from codemods.migrate import main; main()",
            ),
        )
        assert done.stderr == ""
        assert "m/\\u6a21\\u578b.py" in done.stdout


def bad(name: str, content: str | bytes) -> Callable[[], Path]:
    return lambda: write(name, content)


def pipe() -> Path:
    os.mkfifo("m/bad.py")
    return Path("m/bad.py")


def dangling() -> Path:
    Path("m/bad.py").symlink_to("gone.py")
    return Path("m/bad.py")


def outside() -> Path:
    write("elsewhere/real.py")
    Path("m/bad.py").symlink_to("../elsewhere/real.py")
    return Path("m/bad.py")


def read_only() -> Path:
    write("m/bad.py").chmod(0o444)
    return Path("m/bad.py")


def unreadable() -> Path:
    write("m/bad.py").chmod(0)
    return Path("m/bad.py")


PYTHON_2 = OLD + "\n\ndef show(x):\n    print x\n"

BAD = [
    pytest.param(bad("m/bad.py", OLD + "def broken(:\n"), "m/bad.py:15: ", id="syntax-error"),
    pytest.param(bad("m/bad.py", PYTHON_2), "m/bad.py:18: ", id="python-2"),
    pytest.param(bad("m/bad.py", OLD + "\tx = 1\n        y = 2\n"), "m/bad.py:1", id="tabs-that-contradict-spaces"),
    pytest.param(bad("m/bad.py", OLD.encode() + b"# caf\xe9\n"), "m/bad.py:15: byte 0xe9", id="not-utf-8"),
    pytest.param(bad("m/bad.py", b"# coding: klingon\n" + OLD.encode()), "m/bad.py:1: declares", id="unknown-coding"),
    pytest.param(bad("m/bad.py", OLD + "\0"), "m/bad.py:15: holds a null byte", id="null-byte"),
    pytest.param(bad("m/bad.py", OLD.encode("utf-16")), "m/bad.py:1: is UTF-16", id="utf-16"),
    pytest.param(pipe, "m/bad.py: is not a regular file", id="pipe"),
    pytest.param(dangling, "m/bad.py: cannot be read", id="link-to-nowhere"),
    pytest.param(outside, "m/bad.py: leads to elsewhere/real.py, outside", id="link-outside"),
    pytest.param(read_only, "m/bad.py: is read-only", id="read-only"),
    pytest.param(
        unreadable,
        "m/bad.py: cannot be read",
        id="unreadable",
        marks=pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything"),
    ),
]


@pytest.mark.parametrize(("make", "says"), BAD)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_bad_input_is_one_line_and_exit_2_and_the_rest_goes_on(make: Callable[[], Path], says: str, jobs: str) -> None:
    good = [write(f"m/{name}.py") for name in ("a", "b", "z")]
    path = make()
    before = path.read_bytes() if path.is_file() and os.access(path, os.R_OK) else None
    done = port("--jobs", jobs, "m")
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {says}")
    assert "; " in line  # what is wrong; what to do
    assert all(ported(other.read_bytes()) for other in good)
    assert before is None or path.read_bytes() == before
    assert list(Path("m").glob(".*")) == []


@pytest.mark.parametrize("make", [case.values[0] for case in BAD if case.id in ("link-outside", "read-only")])
@pytest.mark.parametrize("flag", ["--check", "--diff"])
def test_a_dry_run_fails_where_the_run_would(make: Callable[[], Path], flag: str) -> None:
    Path("m").mkdir()
    make()
    assert port(flag, "m").returncode == 2


def test_a_file_that_needs_no_change_may_be_read_only_or_elsewhere() -> None:
    write("elsewhere/real.py", "x = 1\n")
    write("m/fixed.py", "x = 1\n").chmod(0o444)
    Path("m/link.py").symlink_to("../elsewhere/real.py")
    done = port("m")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_path_is_one_line_and_the_rest_goes_on() -> None:
    good = write("m/a.py")
    done = port("gone", "m")
    assert done.returncode == 2
    assert done.stderr == "error: gone: no such file or folder; check the path\n"
    assert ported(good.read_bytes())


CRLF = OLD.replace("\n", "\r\n")

UNUSUAL = [
    pytest.param(b"\xef\xbb\xbf" + OLD.encode(), id="bom"),
    pytest.param(CRLF.encode(), id="crlf"),
    pytest.param(OLD.replace("\n", "\r\n", 6).encode(), id="mixed-newlines"),
    pytest.param(OLD.rstrip("\n").encode(), id="no-newline-at-end"),
    pytest.param(OLD.replace("    ", "\t").encode(), id="tabs"),
    pytest.param(b"# -*- coding: latin-1 -*-\n" + OLD.encode() + b"# \xe9\n", id="latin-1"),
    pytest.param(OLD.encode() + "# 模型\n".encode(), id="utf-8"),
    pytest.param(OLD.encode() + b"x = 1\n" * 50_000, id="50000-lines"),
]


@pytest.mark.parametrize("raw", UNUSUAL)
def test_unusual_files_are_ported_and_keep_their_ways(raw: bytes) -> None:
    path = write("m/a.py", raw)
    path.chmod(0o640)
    done = port("m")
    assert (done.returncode, done.stderr) == (0, "")
    new = path.read_bytes()
    assert ported(new)
    assert path.stat().st_mode & 0o777 == 0o640
    assert new.startswith(b"\xef\xbb\xbf") == raw.startswith(b"\xef\xbb\xbf")
    assert new.endswith(b"\n") == raw.endswith(b"\n")
    # Lines about attention, and blank ones between imports, are the rewrite's own; the others come out as they went in.
    changing = (b"ttention", b"attn")
    kept = [line for line in raw.splitlines(keepends=True) if line.strip() and not any(w in line for w in changing)]
    lines = iter(new.splitlines(keepends=True))
    assert [line for line in kept if line not in lines] == []
    if b"\r\n" in raw and raw == CRLF.encode():
        assert new.count(b"\n") == new.count(b"\r\n")
    assert port("m").stdout.splitlines()[-1].startswith("result    nothing left to do")
    assert path.read_bytes() == new


@pytest.mark.parametrize("raw", [case for case in UNUSUAL if case.id != "50000-lines"])
def test_the_diff_of_an_unusual_file_is_what_the_run_writes(raw: bytes) -> None:
    path = write("m/a.py", raw)
    subprocess.run(["git", "init", "--quiet"], check=True)
    patch = subprocess.run(
        [sys.executable, "-m", "codemods.migrate", "--target", "0.20", "--diff", "--quiet", "m"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (patch.returncode, patch.stderr) == (1, b"")
    subprocess.run(["git", "apply", "-"], input=patch.stdout, check=True)
    by_git = path.read_bytes()
    path.write_bytes(raw)
    port("m")
    assert path.read_bytes() == by_git


def test_an_empty_file_is_nothing_to_do() -> None:
    path = write("m/a.py", b"")
    done = port("m")
    assert (done.returncode, done.stderr, path.read_bytes()) == (0, "", b"")


def test_a_folder_named_like_a_file_is_searched() -> None:
    path = write("m/x.py/a.py")
    assert port("m").returncode == 0
    assert ported(path.read_bytes())


def test_a_link_inside_is_followed_once() -> None:
    path = write("m/real.py")
    Path("m/link.py").symlink_to("real.py")
    done = port("m", "--report", "r.json")
    assert done.returncode == 0
    assert [file["path"] for file in json.loads(Path("r.json").read_text())["files"]] == ["m/real.py"]
    assert Path("m/link.py").is_symlink()
    assert ported(path.read_bytes())


def test_a_file_that_changes_while_it_is_ported_keeps_the_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    victim, other = write("m/victim.py"), write("m/other.py")
    read = SourceFile.read.__func__

    def read_and_edit(path: Path) -> SourceFile:
        source: SourceFile = read(SourceFile, path)
        if path == victim:
            victim.write_text(OLD + "# mine\n")
        return source

    monkeypatch.setattr(SourceFile, "read", read_and_edit)
    assert main(["--target", "0.20", "--jobs", "1", "m"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: m/victim.py: changed on disk")
    assert victim.read_text() == OLD + "# mine\n"
    assert ported(other.read_bytes())


# Ctrl-C on a terminal reaches every process of the command. It comes at the worst moment: while a new file is flushed.
INTERRUPT = """
    import os, signal, sys
    from codemods.migrate import main
    flush, flushed = os.fsync, []

    def interrupt(handle):
        flushed.append(handle)
        if len(flushed) == 2:
            os.killpg(os.getpgrp(), signal.SIGINT)
        flush(handle)

    os.fsync = interrupt
    sys.exit(main())
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_leaves_whole_files_and_no_litter(jobs: str) -> None:
    files = [write(f"m/{number:02}.py") for number in range(40)]
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPT), "--target", "0.20", "--jobs", jobs, "m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        text=True,
    )
    try:
        out, err = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert (child.returncode, out) == (130, "")
    [line] = err.splitlines()
    assert line.startswith("vitport: interrupted")
    contents = {path.read_bytes() for path in files}
    assert len(contents - {OLD.encode()}) == 1  # some were ported, all in full
    assert OLD.encode() in contents  # and some were not
    assert sorted(Path("m").iterdir()) == files
    assert port("m").returncode == 0  # going on
    assert all(ported(path.read_bytes()) for path in files)
