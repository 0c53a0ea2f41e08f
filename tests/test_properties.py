"""However a file is written, the port is the same, is done once, and leaves everything else alone."""

from __future__ import annotations

import ast
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from codemods import carry_out, vllm_api
from codemods.findings import Report
from codemods.rules import RULES
from codemods.run import Options, migrate
from tests.corpus import restyle
from tests.corpus.comments import lost_comments

TARGET = "0.32"
RUN_OF_PROPERTIES = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# A plain attention, a dispatch chain, a chain with xFormers lengths and its tower: each a whole file of the old kind.
FILES = {rule.name: rule.examples[0].before for rule in RULES if rule.code in ("VA101", "VA201", "VA304", "VA501")}
files = st.sampled_from(sorted(FILES)).map(FILES.__getitem__)

# Code that has nothing to do with attention, in a style of its own, that must stay as it is to the byte.
BYSTANDER = """\


class  Unrelated( object ) :   # odd spacing
    table={'a':1,
      "b" : 2 ,}   ;  other = ( 3,)

    def method(self,x) : return  x+ 1   # no type

def trailing( *arguments,**options ):
    return {  **options,
        'rest' : arguments }
"""


def port_all(texts: dict[str, str], order: Sequence[str] = (), jobs: int = 1) -> tuple[dict[str, str], Report]:
    """Write the files into a folder, port it, read them again."""
    with TemporaryDirectory() as folder:
        paths = {name: Path(folder, "plugin", name) for name in texts}
        next(iter(paths.values())).parent.mkdir()
        for name, path in paths.items():
            path.write_bytes(texts[name].encode())
        report = migrate(
            [paths[name] for name in order or sorted(paths)], Options(target=vllm_api.resolve(TARGET), jobs=jobs)
        )
        return {name: path.read_bytes().decode() for name, path in paths.items()}, report


def port(text: str) -> str:
    after, report = port_all({"model.py": text})
    assert [file.error for file in report.files] == [None]
    return after["model.py"]


# -- ways of writing a file --------------------------------------------------------------------------------------------

new_names = st.text(string.ascii_lowercase, min_size=3, max_size=8).map(lambda word: f"{word}_x")


@st.composite
def renamings(draw: st.DrawFn, names: Sequence[str]) -> dict[str, str]:
    """New names, all different, for some of the names."""
    chosen = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    return dict(
        zip(chosen, draw(st.lists(new_names, min_size=len(chosen), max_size=len(chosen), unique=True)), strict=True)
    )


@st.composite
def styles(draw: st.DrawFn) -> Callable[[str], str]:
    """A way to write a file that does not change what it does."""
    turns = draw(st.lists(st.integers(0, 4), max_size=12))
    layout = draw(
        st.one_of(st.none(), st.tuples(st.sampled_from([40, 80, 200]), st.sampled_from(["double", "single"])))
    )
    quotes = draw(st.lists(st.booleans(), max_size=20))
    comments = draw(st.lists(st.integers(0, 2), max_size=60))

    def write(text: str) -> str:
        if turns:
            text = restyle.turn_keywords(text, turns)
        if layout:
            text = restyle.formatted(text, *layout)
        return restyle.comment(restyle.other_quotes(text, quotes), comments)

    return write


# -- properties --------------------------------------------------------------------------------------------------------


@RUN_OF_PROPERTIES
@given(files, styles())
def test_style_does_not_change_the_port(text: str, style: Callable[[str], str]) -> None:
    written = style(text)
    after = port(written)
    assert restyle.meaning(after) == restyle.meaning(port(text))
    assert lost_comments(written, after) == []


@RUN_OF_PROPERTIES
@given(files, styles())
def test_a_second_run_changes_nothing(text: str, style: Callable[[str], str]) -> None:
    after = port(style(text))
    assert port(after) == after


@RUN_OF_PROPERTIES
@given(st.data())
def test_structure_counts_not_names(data: st.DataObject) -> None:
    # The op has parameters of these two names; in the file they are to be names like others.
    text = restyle.rename(data.draw(files), {"cu_seqlens": "bounds", "max_seqlen": "longest"})
    names = data.draw(renamings(restyle.own_names(text)))
    assert restyle.meaning(port(restyle.rename(text, names))) == restyle.meaning(restyle.rename(port(text), names))


@RUN_OF_PROPERTIES
@given(st.data())
def test_imports_may_have_aliases(data: st.DataObject) -> None:
    text = data.draw(files)
    imported = [name for name in imported_names(text) if name not in NOT_FOLLOWED]
    aliased = restyle.import_as(text, data.draw(renamings(imported)))
    assert restyle.meaning(port(aliased)) == restyle.meaning(port(text))


NOT_FOLLOWED = ("rearrange", "vit_flash_attn_wrapper", "vit_xformers_attn_wrapper")


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_helpers_may_have_aliases(name: str) -> None:
    text = FILES["dispatch-chain" if name == "rearrange" else "xformers-lengths"]
    assert restyle.meaning(port(restyle.import_as(text, {name: "other"}))) == restyle.meaning(port(text))


def imported_names(text: str) -> list[str]:
    return [a.name for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) for a in node.names]


@pytest.mark.parametrize(
    "written",
    [
        "# why\n{}",
        "{}  # why",
    ],
)
def test_a_comment_at_an_import_moves_with_it(written: str) -> None:
    line = "from vllm.attention.backends.registry import AttentionBackendEnum"
    assert "# why" in port(FILES["xformers-lengths"].replace(line, written.format(line)))


def test_a_returned_tuple_may_have_parentheses() -> None:
    text = FILES["xformers-lengths"]
    written = text.replace("return max_seqlen, seqlens", "return (max_seqlen, seqlens)")
    assert restyle.meaning(port(written)) == restyle.meaning(port(text))


@pytest.mark.parametrize("condition", ["if True:", "try:\n    pass\nfinally:"])
@pytest.mark.parametrize(
    "name",
    [
        "multi-head-attention",
        "dispatch-chain",
        "xformers-lengths",
        "rotary-embedding",
    ],
)
def test_classes_may_stand_in_a_branch(name: str, condition: str) -> None:
    text = FILES[name]
    assert restyle.meaning(port(restyle.nest(text, condition))) == restyle.meaning(restyle.nest(port(text), condition))


@RUN_OF_PROPERTIES
@given(files, styles())
def test_what_has_nothing_to_do_with_attention_stays_as_it_is(text: str, style: Callable[[str], str]) -> None:
    assert port(style(text) + BYSTANDER).endswith(BYSTANDER)


@pytest.mark.parametrize("name", ["qwen2_vl.py", "siglip2navit.py", "intern_vit.py"])
@settings(RUN_OF_PROPERTIES, max_examples=4, phases=[Phase.generate])  # to shrink these would take minutes
@given(data=st.data(), style=styles())
def test_real_files_may_be_written_otherwise(
    model_files: Callable[[str], Path], name: str, data: st.DataObject, style: Callable[[str], str]
) -> None:
    text = (model_files("0.12.0") / "model_executor" / "models" / name).read_text()
    names = data.draw(renamings(restyle.own_names(text)))
    written = style(restyle.rename(text, names))
    after = port(written)
    assert restyle.meaning(after) == restyle.meaning(restyle.rename(port(text), names))
    assert lost_comments(written, after) == []
    assert port(after) == after


IMPORTS, ATTENTION, TOWER = FILES["xformers-lengths"].split("\n\n\n")
PARTS = {
    "a.py": f"{IMPORTS}\n\n\n{ATTENTION}\n",
    "b.py": f"{IMPORTS}\n\nfrom .a import PatchAttention\n\n\n{TOWER}",
    "c.py": FILES["multi-head-attention"],
}


@settings(RUN_OF_PROPERTIES, max_examples=12)
@given(st.permutations(sorted(PARTS)), st.sampled_from([1, 2]))
def test_neither_order_nor_jobs_matter(monkeypatch: pytest.MonkeyPatch, order: list[str], jobs: int) -> None:
    monkeypatch.setattr(carry_out, "_WORTH_A_POOL", 0)
    after, report = port_all(PARTS, order, jobs)
    expected, expected_report = port_all(PARTS)
    assert after == expected
    assert [(Path(f.path).name, f.rewrites, f.findings) for f in report.files] == [
        (Path(f.path).name, f.rewrites, f.findings) for f in expected_report.files
    ]
