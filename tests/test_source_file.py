"""What is read comes back byte for byte; what cannot be read or must not be written is one clear line."""

from __future__ import annotations

import codecs
import os
import pickle
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemods.source_file import SourceError, SourceFile, find_encoding, replace_file

BOM = codecs.BOM_UTF8


def make(folder: Path, raw: bytes, name: str = "model.py") -> Path:
    path = folder / name
    path.write_bytes(raw)
    return path


def refused(path: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        SourceFile.read(path)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("raw", "encoding", "text"),
    [
        pytest.param(b"", "utf-8", "", id="empty"),
        pytest.param(b"x = 1\n", "utf-8", "x = 1\n", id="ascii"),
        pytest.param("é = '模型'\n".encode(), "utf-8", "é = '模型'\n", id="utf-8"),
        pytest.param(BOM + b"x = 1\n", "utf-8-sig", "x = 1\n", id="bom"),
        pytest.param(BOM, "utf-8-sig", "", id="bom-alone"),
        pytest.param(BOM + b"# coding: utf-8\n", "utf-8-sig", "# coding: utf-8\n", id="bom-and-coding"),
        pytest.param(b"a = 1\r\nb = 2\r\n", "utf-8", "a = 1\r\nb = 2\r\n", id="crlf"),
        pytest.param(b"a\r\nb\nc\rd", "utf-8", "a\r\nb\nc\rd", id="mixed-newlines"),
        pytest.param(b"if a:\n\tb = 1\n        \tc\n", "utf-8", "if a:\n\tb = 1\n        \tc\n", id="tabs"),
        pytest.param(b"x = 1", "utf-8", "x = 1", id="no-newline-at-end"),
        pytest.param(
            b"# -*- coding: latin-1 -*-\n# \xe9\n", "iso-8859-1", "# -*- coding: latin-1 -*-\n# é\n", id="latin-1"
        ),
        pytest.param(
            b"#!/usr/bin/python\r\n# vim: set fileencoding=cp1251 :\r\n# \xff",
            "cp1251",
            "#!/usr/bin/python\r\n# vim: set fileencoding=cp1251 :\r\n# я",
            id="line-2",
        ),
        pytest.param(b"\n# coding: euc-jp\n# \xa4\xa2", "euc-jp", "\n# coding: euc-jp\n# あ", id="blank-line-above"),
        pytest.param(b"# coding: utf-8-unix\n", "utf-8", "# coding: utf-8-unix\n", id="editor-suffix"),
        pytest.param(b"x = 1\n# coding: hex\n", "utf-8", "x = 1\n# coding: hex\n", id="coding-below-code-is-a-comment"),
        pytest.param(b"\n\n# coding: hex\n", "utf-8", "\n\n# coding: hex\n", id="coding-on-line-3-is-a-comment"),
    ],
)
def test_reads_as_python_does_and_gives_the_same_bytes_back(
    tmp_path: Path, raw: bytes, encoding: str, text: str
) -> None:
    source = SourceFile.read(make(tmp_path, raw))
    assert (source.encoding, source.text) == (encoding, text)
    assert source.encode(source.text) == raw


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")).filter(
        lambda text: "coding" not in text
    ),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    bom=st.booleans(),
)
def test_any_utf8_text_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, text: str, newline: str, bom: bool
) -> None:
    raw = (BOM if bom else b"") + text.replace("\n", newline).encode()
    source = SourceFile.read(make(tmp_path_factory.mktemp("any"), raw))
    assert source.encode(source.text) == raw


@pytest.mark.parametrize(
    ("raw", "line", "says"),
    [
        pytest.param(b"a = 1\r\n# caf\xe9\r\n", 2, "byte 0xe9 is not valid UTF-8", id="not-utf-8"),
        pytest.param(BOM + b"\n\n# \xff\n", 3, "byte 0xff is not valid UTF-8", id="not-utf-8-after-bom"),
        pytest.param(
            b"# coding: ascii\r# \xe9", 2, "byte 0xe9 is not valid in the declared ascii", id="not-the-declared"
        ),
        pytest.param(b"# coding: klingon\n", 1, "declares the unknown encoding 'klingon'", id="unknown-coding"),
        pytest.param(b"#!/bin/sh\n# coding: hex\n", 2, "declares the unknown encoding 'hex'", id="no-text-coding"),
        pytest.param(b"# coding: utf-16\n", 1, "declares the unknown encoding 'utf-16'", id="coding-beyond-ascii"),
        pytest.param(
            BOM + b"# coding: latin-1\n", 1, "has a UTF-8 byte order mark but declares 'latin-1'", id="bom-vs"
        ),
        pytest.param(b"a = 1\nb = '\0'\n", 2, "holds a null byte", id="null-byte"),
        pytest.param("x = 1\n".encode("utf-16"), 1, "is UTF-16", id="utf-16"),
    ],
)
def test_bytes_that_are_no_python_source_name_the_line(tmp_path: Path, raw: bytes, line: int, says: str) -> None:
    error = refused(make(tmp_path, raw))
    assert error.line == line
    assert says in error.message
    assert error.remedy in str(error)
    assert str(error).startswith(f"{tmp_path / 'model.py'}:{line}: ")


def test_a_spelling_that_would_not_come_back_is_refused(tmp_path: Path) -> None:
    # Two escape sequences in a row: the first says nothing, and is lost when the text is encoded again.
    error = refused(make(tmp_path, b"# coding: iso2022_jp\n# \x1b$B\x1b(B\n"))
    assert "cannot be written back byte for byte" in error.message


class TestNotAFile:
    def test_missing(self, tmp_path: Path) -> None:
        assert refused(tmp_path / "gone.py").message == "cannot be read: no such file or directory"

    def test_a_folder_named_like_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.py").mkdir()
        assert refused(tmp_path / "x.py").message == "is a directory, not a file"

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.py")
        assert refused(tmp_path / "pipe.py").message == "is not a regular file"

    def test_a_link_to_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "link.py").symlink_to("gone.py")
        assert "leads nowhere" in refused(tmp_path / "link.py").remedy

    def test_a_link_to_itself(self, tmp_path: Path) -> None:
        (tmp_path / "loop.py").symlink_to("loop.py")
        assert refused(tmp_path / "loop.py").message.startswith("cannot be read: ")

    def test_forbidden(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = make(tmp_path, b"x = 1\n")

        def forbid(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", forbid)
        error = refused(path)
        assert (error.message, error.remedy) == ("cannot be read: permission denied", "check its permissions")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_forbidden_by_mode(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"x = 1\n")
        path.chmod(0)
        assert refused(path).message == "cannot be read: permission denied"


def test_an_error_survives_the_way_between_processes() -> None:
    error = SourceError(Path("a.py"), 3, "is wrong", "set it right")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a.py:3: is wrong; set it right"


class TestWriting:
    def test_keeps_encoding_newlines_and_mode(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"# coding: latin-1\r\nold = '\xe9'\r\n")
        path.chmod(0o750)
        source = SourceFile.read(path)
        source.write(source.text.replace("old", "new"), [tmp_path])
        assert path.read_bytes() == b"# coding: latin-1\r\nnew = '\xe9'\r\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o750
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
    def test_keeps_the_owner(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"old\n")
        os.chown(path, 1234, 4321)
        path.chmod(0o4755)
        SourceFile.read(path).write("new\n", [tmp_path])
        now = path.stat()
        assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (1234, 4321, 0o4755)

    def test_50000_lines(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"x = 1\n" * 50_000)
        source = SourceFile.read(path)
        source.write(source.text + "y = 2\n", [tmp_path])
        assert path.read_bytes() == b"x = 1\n" * 50_000 + b"y = 2\n"

    def test_a_link_is_written_through_where_its_target_is_inside(self, tmp_path: Path) -> None:
        target = make(tmp_path, b"old\n", "real.py")
        link = tmp_path / "link.py"
        link.symlink_to(target)
        SourceFile.read(link).write("new\n", [tmp_path])
        assert link.is_symlink()
        assert target.read_bytes() == b"new\n"

    def test_a_link_that_leads_outside_is_not_written(self, tmp_path: Path) -> None:
        inside = tmp_path / "inside"
        inside.mkdir()
        target = make(tmp_path, b"old\n", "real.py")
        (inside / "link.py").symlink_to(target)
        self.not_written(inside / "link.py", target, "new\n", [inside], "outside the given paths")

    def test_read_only_is_respected_even_by_root(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"old\n")
        path.chmod(0o444)
        self.not_written(path, path, "new\n", [tmp_path], "is read-only")

    def test_a_character_the_encoding_lacks(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"# coding: latin-1\r\nold\r\n")
        error = self.not_written(
            path, path, "# coding: latin-1\r\n\u20ac\r\n", [tmp_path], "'\u20ac', which iso-8859-1"
        )
        assert error.line == 2

    def test_a_coding_line_pushed_out_of_its_place(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"# coding: latin-1\n# \xe9\n")
        text = "import a\nimport b\n# coding: latin-1\n# é\n"
        self.not_written(path, path, text, [tmp_path], "would lose its coding line")

    @pytest.mark.parametrize("other", [b"old\nmine\n", b"mine"], ids=["longer", "same-length"])
    def test_a_file_that_changed_meanwhile_is_left_alone(self, tmp_path: Path, other: bytes) -> None:
        path = make(tmp_path, b"old\n")
        source = SourceFile.read(path)
        path.write_bytes(other)
        os.utime(path, ns=(source.snapshot.st_atime_ns, source.snapshot.st_mtime_ns))  # as on a slow clock
        with pytest.raises(SourceError, match="changed on disk"):
            source.write("new\n", [tmp_path])
        assert path.read_bytes() == other
        assert list(tmp_path.iterdir()) == [path]

    def test_a_file_that_vanished_meanwhile_stays_away(self, tmp_path: Path) -> None:
        path = make(tmp_path, b"old\n")
        source = SourceFile.read(path)
        path.unlink()
        with pytest.raises(SourceError, match="changed on disk"):
            source.write("new\n", [tmp_path])
        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        path = make(tmp_path, b"old\n")
        self.not_written(path, path, "new\n", [tmp_path], "cannot be written: no space left on device")

    def test_an_interrupt_leaves_the_old_file_and_no_litter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        path = make(tmp_path, b"old\n")
        with pytest.raises(KeyboardInterrupt):
            SourceFile.read(path).write("new\n", [tmp_path])
        assert path.read_bytes() == b"old\n"
        assert list(tmp_path.iterdir()) == [path]

    @staticmethod
    def not_written(path: Path, target: Path, text: str, roots: list[Path], says: str) -> SourceError:
        before = (target.read_bytes(), target.stat().st_mtime_ns, sorted(target.parent.iterdir()))
        with pytest.raises(SourceError) as caught:
            SourceFile.read(path).write(text, roots)
        if says.startswith("cannot be written"):  # known only by trying
            SourceFile.read(path).check_write(text, roots)
        else:
            with pytest.raises(SourceError, match=re.escape(says)):
                SourceFile.read(path).check_write(text, roots)
        assert says in caught.value.message
        assert (target.read_bytes(), target.stat().st_mtime_ns, sorted(target.parent.iterdir())) == before
        return caught.value


def test_a_new_file_gets_the_usual_mode(tmp_path: Path) -> None:
    usual = make(tmp_path, b"", "usual")
    replace_file(tmp_path / "new", b"text")
    assert (tmp_path / "new").read_bytes() == b"text"
    assert (tmp_path / "new").stat().st_mode == usual.stat().st_mode


def test_find_encoding_agrees_with_python(tmp_path: Path) -> None:
    """The standard library's own detection is the reference, for every head that it accepts."""
    import io
    import tokenize

    for head in (
        b"",
        BOM,
        b"# coding=latin_1-dos\n",
        b"\x0c# coding: utf_8\n",
        b"'''\n# coding: cp1252\n",
        b"#\n\n# coding: x",
    ):
        expected = tokenize.detect_encoding(io.BytesIO(head).readline)[0]
        assert codecs.lookup(find_encoding(tmp_path, head)) == codecs.lookup(expected)
