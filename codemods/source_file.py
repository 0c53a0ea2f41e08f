"""Bytes to text and back without losing one; a write leaves the old file or the new one, never half of either."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

NEWLINE = re.compile(rb"\r\n|\r|\n")
_CODING = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BLANK_OR_COMMENT = re.compile(rb"[ \t\f]*(?:#|$)")
_PLAIN = bytes([9, 10, 13, *range(32, 127)])
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class SourceError(Exception):
    """One file that cannot be read or must not be written. `str()` is one line: path, line if known, reason, remedy."""

    def __init__(self, path: Path, line: int | None, message: str, remedy: str) -> None:
        super().__init__(path, line, message, remedy)  # all of them, or the error does not survive pickling
        self.path = path
        self.line = line
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        return f"{where}: {self.message}; {self.remedy}"


@dataclass(frozen=True)
class SourceFile:
    """A Python file as it was when read.

    `text` holds the newlines as they are in the file and no byte order mark; `encoding` is the Python codec that turns
    it back into `raw` ("utf-8-sig" where the file has a byte order mark).
    """

    path: Path
    text: str = field(repr=False)
    encoding: str
    raw: bytes = field(repr=False)
    snapshot: os.stat_result = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """Read a file the way Python would (PEP 263). Raises SourceError where it cannot be read or decoded."""
        try:
            # Opening a pipe would wait for a writer that never comes, so look at what it is first.
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise SourceError(path, None, "is a directory, not a file", "give a file or the folder's own files")
            if not stat.S_ISREG(mode):
                raise SourceError(path, None, "is not a regular file", "give a file that holds Python source")
            with path.open("rb") as handle:
                snapshot = os.fstat(handle.fileno())
                raw = handle.read()
        except OSError as error:
            raise SourceError(path, None, f"cannot be read: {_reason(error)}", _read_remedy(path, error)) from error
        encoding = find_encoding(path, raw)
        return cls(path, _decode(path, raw, encoding), encoding, raw, snapshot)

    def encode(self, text: str) -> bytes:
        """The bytes of `text` in this file's encoding. Raises SourceError if Python would not read it back the same."""
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            good = text[: error.start].encode(self.encoding)
            raise SourceError(
                self.path,
                _line_at(good, len(good)),
                f"the new text holds {text[error.start]!r}, which {self.encoding} cannot express",
                "save the file as UTF-8 first",
            ) from error
        if find_encoding(self.path, data) != self.encoding or _decode(self.path, data, self.encoding) != text:
            raise SourceError(
                self.path,
                1,
                "the new text would lose its coding line",
                "save the file as UTF-8 without a coding line first",
            )
        return data

    def check_write(self, text: str, roots: Sequence[Path]) -> tuple[Path, bytes]:
        """The real path and the bytes of a write, for a dry run to fail where the run would.

        Raises SourceError where the file is read-only, outside `roots` (real paths), or cannot express the text.
        """
        data = self.encode(text)
        real = Path(os.path.realpath(self.path))
        if not any(real == root or root in real.parents for root in roots):
            raise SourceError(
                self.path,
                None,
                f"leads to {os.path.relpath(real)}, outside the given paths; not written",
                "give that path itself",
            )
        # The mode bits are asked, not only access(): to root every file is writable, yet its owner meant read-only.
        forbidden = real.exists() and not os.access(real, os.W_OK)
        if forbidden or not stat.S_IMODE(self.snapshot.st_mode) & 0o222:
            raise SourceError(
                self.path, None, "is read-only; not written", "make it writable (chmod u+w) and run again"
            )
        return real, data

    def write(self, text: str, roots: Sequence[Path]) -> None:
        """Replace the file's content. Raises SourceError, the file untouched, where that is unsafe or fails."""
        real, data = self.check_write(text, roots)
        try:
            replace_file(real, data, like=self.snapshot, before_replacing=lambda: self._check_unchanged(real))
        except OSError as error:
            raise SourceError(
                self.path,
                None,
                f"cannot be written: {_reason(error)}",
                "check its folder's permissions and free space",
            ) from error

    def _check_unchanged(self, real: Path) -> None:
        seen = self.snapshot
        try:
            now = real.stat()
            same = (now.st_ino, now.st_size, now.st_mtime_ns) == (seen.st_ino, seen.st_size, seen.st_mtime_ns)
            # Clocks of some file systems tick slowly: two writes within a tick look alike, their bytes do not.
            same = same and real.read_bytes() == self.raw
        except FileNotFoundError:
            same = False
        if not same:
            raise SourceError(self.path, None, "changed on disk while it was being migrated; left alone", "run again")


def find_encoding(path: Path, raw: bytes) -> str:
    """The codec Python reads `raw` with. Raises SourceError for null bytes, unknown codecs and contradictions."""
    null = raw.find(0)
    if null >= 0:
        utf16 = raw.startswith(_UTF16_BOMS)
        what = "is UTF-16, which Python does not read" if utf16 else "holds a null byte, so it is not Python source"
        raise SourceError(path, 1 if utf16 else _line_at(raw, null), what, "save it as UTF-8")
    bom = raw.startswith(codecs.BOM_UTF8)
    declared = _declared(raw[len(codecs.BOM_UTF8) :] if bom else raw)
    if declared is None:
        return "utf-8-sig" if bom else "utf-8"
    name, line = declared
    codec = _python_name(name)
    if bom and codec != "utf-8":
        raise SourceError(
            path, line, f"has a UTF-8 byte order mark but declares {name!r}", "remove the mark or the coding line"
        )
    if bom:
        return "utf-8-sig"
    try:
        plain = _PLAIN.decode(codec)
    except (LookupError, UnicodeError):
        plain = ""
    if plain.encode("ascii", "replace") != _PLAIN:
        raise SourceError(
            path, line, f"declares the unknown encoding {name!r}", "correct the coding line, or save the file as UTF-8"
        )
    return codec


def replace_file(
    path: Path,
    data: bytes,
    like: os.stat_result | None = None,
    before_replacing: Callable[[], None] = lambda: None,
) -> None:
    """Write `data` beside `path`, flush it to disk, then move it there in one step; mode and owner as in `like`.

    Whatever happens, also an interrupt, `path` is whole and no temporary file stays behind. Raises OSError.
    """
    temporary = path.with_name(f".vitport-{os.urandom(8).hex()}.tmp")
    mode = 0o600 if like else 0o666
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        if like:
            _adopt(temporary, like)
        before_replacing()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _adopt(path: Path, like: os.stat_result) -> None:
    """Owner before mode: a change of owner clears the set-user bits."""
    made = path.stat()
    if hasattr(os, "chown") and (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
        with suppress(PermissionError):  # only root may give files away; the content and the mode are still right
            os.chown(path, like.st_uid, like.st_gid)
    path.chmod(stat.S_IMODE(like.st_mode))


def _declared(raw: bytes) -> tuple[str, int] | None:
    """The coding line's name and line number: on line 1, or on line 2 below a blank line or a comment."""
    for number, line in enumerate(NEWLINE.split(raw, maxsplit=2)[:2], 1):
        if match := _CODING.match(line):
            return match[1].decode("ascii", "replace"), number
        if not _BLANK_OR_COMMENT.match(line):
            return None
    return None


def _python_name(name: str) -> str:
    """Editors append things such as "-unix" to the two common names; Python looks past them, and so must we."""
    lower = name.lower().replace("_", "-")
    for known, codec in (
        ("utf-8", "utf-8"),
        ("latin-1", "iso-8859-1"),
        ("iso-8859-1", "iso-8859-1"),
        ("iso-latin-1", "iso-8859-1"),
    ):
        if lower == known or lower.startswith(f"{known}-"):
            return codec
    return name


def _decode(path: Path, raw: bytes, encoding: str) -> str:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = _line_at(error.object, error.start)
        byte = f"byte 0x{error.object[error.start]:02x}"
        if encoding.startswith("utf-8"):
            raise SourceError(
                path,
                line,
                f"{byte} is not valid UTF-8",
                "save it as UTF-8, or name its encoding in a first line such as '# -*- coding: latin-1 -*-'",
            ) from error
        raise SourceError(
            path,
            line,
            f"{byte} is not valid in the declared {encoding}",
            "correct the coding line, or save it as UTF-8",
        ) from error
    # UTF-8 has one spelling for a text; of the codecs a coding line may name, some have several.
    if not encoding.startswith("utf-8") and text.encode(encoding) != raw:
        raise SourceError(path, 1, f"{encoding} cannot be written back byte for byte", "save the file as UTF-8 first")
    return text


def _line_at(raw: bytes, offset: int) -> int:
    return len(NEWLINE.findall(raw, 0, offset)) + 1


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _read_remedy(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return "the symbolic link leads nowhere; repair or remove it"
    if isinstance(error, PermissionError):
        return "check its permissions"
    return "check the path"
