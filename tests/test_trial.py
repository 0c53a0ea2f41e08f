"""A migration that is looked at first: nothing is written but what was seen, and that can be taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from codemods.trial import Trial, TrialError

EXAMPLE = Path(__file__).parents[1] / "examples" / "orchard_vl_plugin" / "orchard_vl"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__")))


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}


def test_a_look_writes_nothing(models: Path):
    before = texts(models)
    trial = Trial(models, "0.32")
    assert [trial.name(file) for file in trial.changed] == ["attention.py", "model.py", "vision.py"]
    assert texts(models) == before


def test_a_copy_is_whole_and_the_originals_stay(models: Path, tmp_path: Path):
    before = texts(models)
    trial = Trial(models, "0.32")
    written = trial.write(tmp_path / "ported")
    after = texts(written.place)
    assert written.place == tmp_path / "ported" / "models"
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"attention.py", "model.py", "vision.py"}
    assert all(after[trial.name(file)] == file.after for file in trial.changed)
    assert texts(models) == before


def test_undo_takes_a_copy_away(models: Path, tmp_path: Path):
    trial = Trial(models, "0.32")
    place = trial.write(tmp_path / "ported").place
    trial.undo()
    assert not place.exists()


def test_undo_gives_back_every_byte(models: Path):
    before = texts(models)
    trial = Trial(models, "0.32")
    trial.write()
    assert texts(models) != before
    trial.undo()
    assert texts(models) == before


def test_undo_leaves_alone_what_was_edited_since(models: Path):
    trial = Trial(models, "0.32")
    trial.write()
    edited = models / "vision.py"
    edited.write_text(edited.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    kept = texts(models)
    with pytest.raises(TrialError, match=r"nothing is undone, for what was edited since would be lost: .*vision\.py;"):
        trial.undo()
    assert texts(models) == kept


def test_a_copy_that_was_edited_is_kept_aside(models: Path, tmp_path: Path):
    trial = Trial(models, "0.32")
    place = trial.write(tmp_path / "ported").place
    assert trial.write(tmp_path / "ported").kept is None  # as it was written
    edited = place / "vision.py"
    edited.write_text(edited.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    mine = texts(place)
    kept = trial.write(tmp_path / "ported").kept
    assert kept == tmp_path / "ported" / "models.kept-1"
    assert texts(kept) == mine
    trial.undo()
    assert texts(place) == mine


def test_a_port_in_place_is_not_written_twice(models: Path):
    trial = Trial(models, "0.32")
    trial.write()
    with pytest.raises(TrialError, match=r"is ported already: there is nothing to write; Undo takes it back$"):
        trial.write()


def test_undo_without_a_write_is_said(models: Path):
    with pytest.raises(TrialError, match="nothing is written yet"):
        Trial(models, "0.32").undo()


@pytest.mark.parametrize("copy", [True, False])
def test_what_was_not_seen_is_not_written(models: Path, tmp_path: Path, copy: bool):
    trial = Trial(models, "0.32")
    trial.look()
    edited = models / "vision.py"
    edited.write_text(edited.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    kept = texts(models)
    with pytest.raises(TrialError, match=r"vision\.py was changed since it was looked at; look again"):
        trial.write(tmp_path / "ported" if copy else None)
    assert texts(models) == kept
    assert not (tmp_path / "ported").exists()


def test_a_write_that_fails_half_way_leaves_nothing_half(models: Path):
    before = texts(models)
    trial = Trial(models, "0.32")
    trial.look()
    (models / "vision.py").chmod(0o444)
    with pytest.raises(TrialError, match="is read-only"):
        trial.write()
    assert texts(models) == before


def test_a_copy_never_lies_in_what_it_copies(models: Path):
    with pytest.raises(TrialError, match="write to another folder"):
        Trial(models, "0.32").write(models / "ported")


def test_a_rule_that_is_left_out_rewrites_nothing(models: Path):
    with_all, without = Trial(models, "0.32"), Trial(models, "0.32", ["VA303"])
    assert "VA303" in {rule.code for rule, times in with_all.rules() if times}
    assert {code for file in without.changed for code in (r.code for r in file.rewrites)}.isdisjoint({"VA303"})
    assert ("VA303", 0) in [(rule.code, times) for rule, times in without.rules()]


def test_what_needs_a_rule_is_known(models: Path):
    assert "VA201" in Trial(models, "0.32").needing("VA202")


def test_a_single_file_is_copied_as_one(models: Path, tmp_path: Path):
    trial = Trial(models / "attention.py", "0.32")
    written = trial.write(tmp_path / "ported")
    assert written.place == tmp_path / "ported" / "attention.py"
    assert "MMEncoderAttention" in written.place.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "target", "left_out", "said"),
    [
        ("missing", "0.32", [], "no such file or folder"),
        ("models", "9.9", [], "vLLM 9.9 is not in the index"),
        ("models", "0.12", [], "the oldest target is 0.13"),
        ("models", "0.32", ["VA999"], "no rule has the code VA999"),
    ],
)
def test_bad_choices_get_one_line(models: Path, path: str, target: str, left_out: list[str], said: str):
    with pytest.raises(TrialError, match=said) as raised:
        Trial(models.parent / path, target, left_out)
    assert "\n" not in str(raised.value)


def test_progress_can_end_a_look(models: Path):
    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        Trial(models, "0.32").look(stop)
