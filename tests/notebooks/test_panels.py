"""The panels, exercised by code: what a click does, what is then shown, and what a saved notebook keeps of it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import ipywidgets
import pytest

from codemods.reports import counts
from porting.widgets import migrating
from porting.widgets.findings import Findings
from porting.widgets.panel import Line, Panel
from porting.widgets.pick import Pick
from porting.widgets.rules import Rules
from porting.widgets.session import Session
from porting.widgets.side_by_side import SideBySide
from porting.widgets.work import Work
from porting.widgets.write import Write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example's files in `models/` of an empty folder, where the panels then are."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples/orchard_vl_plugin/orchard_vl", "models", ignore=shutil.ignore_patterns("__*__"))
    return Path("models")


@pytest.fixture
def session(models: Path) -> Session:
    session = Session()
    session.choose(models, "0.32")
    return session


def picked(session: Session, models: str, target: str = "0.32") -> Pick:
    pick = Pick(session, models, target)
    asyncio.run(pick.work.done())
    return pick


# -- choosing --------------------------------------------------------------------------------------------------------


def test_a_pick_looks_at_once(models: Path):
    session = Session()
    pick = picked(session, "models")
    assert session.trial.path == models
    assert "3 rewritten" in pick.work.said


def test_another_target_is_another_look(models: Path):
    session = Session()
    pick = picked(session, "models")
    pick.target.value = "0.13.0"
    pick.look.click()
    asyncio.run(pick.work.done())
    assert session.trial.target == "0.13.0"


def test_a_path_that_is_missing_is_said_and_changes_nothing(models: Path):
    session = Session()
    pick = picked(session, "models")
    pick.path.value = "elsewhere"
    pick.look.click()
    asyncio.run(pick.work.done())
    assert pick.work.said == "elsewhere: no such file or folder; check the path"
    assert session.trial.path == models
    assert not pick.look.disabled


def test_the_files_of_a_release_can_be_picked(models: Path, monkeypatch: pytest.MonkeyPatch):
    release = models.parent / "kept" / "vllm" / "model_executor" / "models"
    release.mkdir(parents=True)
    shutil.copy2(models / "attention.py", release)
    (release / "text_only.py").write_text("import torch\n")
    monkeypatch.setattr("porting.releases.files_of", lambda _: models.parent / "kept" / "vllm")
    session = Session()
    picked(session, "vllm 0.12.0")
    assert session.trial.path == Path("build/releases/vllm-0.12.0")
    assert [path.name for path in session.trial.path.iterdir()] == ["attention.py"]


def test_only_what_belongs_to_the_choice_can_be_filled_in(models: Path):
    pick = picked(Session(), "models")
    assert (pick.path.layout.display, pick.release.layout.display) == ("", "none")
    pick.what.value = "files of a vLLM release"
    assert (pick.path.layout.display, pick.release.layout.display) == ("none", "")


def test_a_target_that_became_a_number_is_said():
    line = asyncio.run(migrating.pick("models", 0.3))  # type: ignore[arg-type]  as papermill's -p makes of 0.30
    assert str(line).startswith("the target is the number 0.3, which may have lost a zero")


def test_the_line_of_a_look_counts_what_is_left_when_rules_are_left_out(models: Path):
    session = Session()
    pick = picked(session, "models", "0.32")
    assert "3 rewritten" in pick.work.said
    session.leave_out(["VA201"])
    assert pick.work.said.endswith(counts.files(session.trial.seen))
    assert "1 rewritten, 2 unchanged, 2 needs-attention" in pick.work.said


@pytest.mark.parametrize("target", ["0.12", "9.9", "newest"])
def test_a_target_that_cannot_be_is_said(models: Path, target: str):
    session = Session()
    pick = picked(session, "models", target)
    assert pick.work.bad
    assert isinstance(migrating.step(lambda: Findings(session))(), Line)


def test_stop_ends_a_look():
    work, started, may_go = Work("Looking"), threading.Event(), threading.Event()

    def look(progress) -> str:
        started.set()
        may_go.wait()
        progress(1, 2)
        return "done"

    work.start(look, ())
    started.wait()
    assert not work.stop.disabled
    work.stop.click()
    may_go.set()
    asyncio.run(work.done())
    assert work.said == "Stopped. What was there before is still there."
    assert work.stop.disabled


def test_a_fault_in_the_background_is_seen():
    work = Work("Looking")
    work.start(lambda progress: str(1 / 0), ())
    asyncio.run(work.done())
    assert "ZeroDivisionError" in work.said


# -- looking ---------------------------------------------------------------------------------------------------------


def test_findings_have_a_row_for_each_file_that_changes(session: Session):
    story = Findings(session).story()
    assert all(f"<code>{name}</code>" in story for name in ("attention.py", "model.py", "vision.py"))
    assert "layout.py" not in story


def test_findings_say_what_is_left_to_do(models: Path):
    (models / "pooling.py").write_text(
        "from vllm.attention.layer import MultiHeadAttention\n\n\n"
        "def attend(q, k):\n    return MultiHeadAttention(1, 2, 3)(q, k, k)\n"
    )
    session = Session()
    session.choose(models, "0.32")
    assert "To do:" in Findings(session).story()


def test_panels_follow_the_session(session: Session, models: Path):
    findings, files = Findings(session), SideBySide(session)
    session.choose(models / "model.py", "0.32")
    assert "attention.py" not in findings.shown.value
    assert [label for label, _ in files.files.options] == ["model.py"]


def test_another_file_shows_its_changes(session: Session):
    panel = SideBySide(session)
    panel.files.label = "vision.py"
    assert "compute_attn_mask_seqlen" in panel.shown.value
    assert panel.chosen is not None
    assert panel.chosen.path.endswith("vision.py")


def test_each_change_tells_its_rules_and_why(session: Session):
    story = SideBySide(session).story()
    head, _, body = story.partition("<strong>VA201</strong>")[2].partition("</summary>")
    assert "the kernel dispatch is one call of self.attn" in head
    assert "Follows vLLM 0.13.0" in body


def test_both_sides_are_told_apart_without_colours(session: Session):
    story = SideBySide(session).story()
    assert "<del><code>import torch.nn.functional as F</code></del>" in story
    assert "<ins><code>from vllm.model_executor.layers.attention import MMEncoderAttention</code></ins>" in story


def test_source_text_is_never_markup(models: Path):
    path = models / "attention.py"
    path.write_text(path.read_text().replace("# [patches, 1, hidden]", "# <script>alert(1)</script>"))
    session = Session()
    session.choose(models, "0.32")
    assert "<script" not in SideBySide(session).story()


# -- leaving out, writing, undoing -----------------------------------------------------------------------------------


def test_a_rule_is_left_out_and_taken_back(session: Session):
    panel = Rules(session)
    panel.boxes["VA303"].value = False
    asyncio.run(panel.work.done())
    assert session.trial.left_out == {"VA303"}
    assert panel.work.said.startswith("Left out: VA303")
    panel.boxes["VA303"].value = True
    asyncio.run(panel.work.done())
    assert session.trial.left_out == frozenset()
    assert not any(box.disabled for box in panel.boxes.values())


def test_what_needs_a_rule_goes_with_it_and_is_named(session: Session):
    panel = Rules(session)
    panel.boxes["VA202"].value = False
    asyncio.run(panel.work.done())
    assert "VA201" in panel.work.said


def test_write_and_undo(session: Session):
    panel = Write(session, Path("build/ported"))
    assert panel.undo.disabled
    panel.write.click()
    assert Path("build/ported/models/vision.py").exists()
    assert panel.said == "3 files ported in build/ported/models; nothing is left for a person"
    panel.undo.click()
    assert not Path("build/ported/models").exists()
    assert panel.undo.disabled


def test_in_place_only_where_chosen(session: Session, models: Path):
    before = (models / "vision.py").read_text()
    panel = Write(session, Path("build/ported"), now=True)
    assert (models / "vision.py").read_text() == before
    panel.where.value = "in place"
    panel.write.click()
    assert (models / "vision.py").read_text() != before
    panel.undo.click()
    assert (models / "vision.py").read_text() == before


def test_undo_is_kept_while_rules_are_left_out(session: Session):
    panel = Write(session, Path("build/ported"), now=True)
    session.leave_out(["VA303"])
    assert not panel.undo.disabled
    panel.undo.click()
    assert panel.said == "build/ported/models is taken away"


def test_a_write_that_cannot_be_is_said(session: Session, models: Path):
    (models / "vision.py").write_text("other\n")
    panel = Write(session, Path("build/ported"), now=True)
    assert panel.said == "models/vision.py was changed since it was looked at; look again"


# -- what is saved ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Findings, SideBySide, Rules, lambda session: Write(session, Path("build/ported"))])
def test_a_panel_can_be_read_without_a_kernel(session: Session, make):
    panel: Panel = make(session)
    bundle = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert 'class="vp"' in bundle["text/html"]
    assert bundle["text/plain"].strip()
    assert "Panel(" not in bundle["text/plain"]


def test_everything_that_can_be_clicked_has_a_name(session: Session):
    panels = [Pick(Session(), "models", "0.32"), SideBySide(session), Rules(session), Write(session, Path("x"))]
    while panels:
        widget = panels.pop()
        panels += getattr(widget, "children", ())
        if isinstance(widget, (ipywidgets.Button, ipywidgets.Text, ipywidgets.Checkbox, ipywidgets.Dropdown)):
            assert widget.description


def test_a_step_out_of_order_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(migrating, "session", Session())
    for step in (migrating.findings, migrating.side_by_side, migrating.rules, migrating.write):
        said = step()
        assert isinstance(said, Line)
        assert said.text == "nothing is chosen yet: run the cell that picks a model, above"
