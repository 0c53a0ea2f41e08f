"""The rules' pages: made from the rules, the same on every run, and known to be stale when they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from codemods import rule_pages
from tests.reports.sample import RULES

VA1 = """\
# VA1: encoder-attention

Replaces OldAttention | NewAttention.

- **Safety**: safe, unless the report marks a rewrite for review
- **Follows**: vLLM 0.13 (#1)
- **Looks at files that mention**: `OldAttention`, `old`

## Why

The old class is gone.

## Example, from vLLM 0.12 to 0.32

```diff
-import a
+import b

-a.old()
+b.new()
```
"""

VA2 = """\
# VA2: scale

Passes the scale.

- **Safety**: review: where it was not the default
- **Follows**: vLLM 0.14 (#2)
- **Looks at files that mention**: `scale`
- **Runs only together with**: VA1

## Why

It is no longer implied.

## Left alone, with a finding, from vLLM 0.11.1 to 0.13

```python
a.old(q, mask)
```
"""

INDEX = """\
# Rules

In the order a run applies them.

| code | name | what it does | safety |
|---|---|---|---|
| [VA1](VA1.md) | encoder-attention | Replaces OldAttention \\| NewAttention. | safe |
| [VA2](VA2.md) | scale | Passes the scale. | review: where it was not the default |
"""


@pytest.fixture(autouse=True)
def sample_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemods.rules.RULES", RULES)


def test_a_page_shows_the_change_or_what_is_left_alone() -> None:
    assert [rule_pages.page(rule) for rule in RULES] == [VA1, VA2]


def test_the_index_keeps_the_rules_order() -> None:
    assert rule_pages.index(RULES) == f"{rule_pages.MARK}\n\n{INDEX}"


def test_the_folder_holds_a_page_for_each_rule_and_the_index(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "rules"
    assert rule_pages.main([str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "VA1.md", "VA2.md"]
    assert (folder / "VA1.md").read_text() == f"{rule_pages.MARK}\n\n{VA1}"
    assert rule_pages.main(["--check", str(folder)]) == 0


def test_check_names_stale_missing_and_orphaned_pages_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule_pages.main([str(tmp_path)])
    (tmp_path / "VA1.md").write_text("edited")
    (tmp_path / "VA2.md").unlink()
    (tmp_path / "VA9.md").write_text(f"{rule_pages.MARK}\n")
    (tmp_path / "notes.md").write_text("by hand")
    assert rule_pages.main(["--check", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [Path(line.split(":")[0]).name for line in lines] == ["VA1.md", "VA2.md", "VA9.md"]
    assert (tmp_path / "VA1.md").read_text() == "edited"

    assert rule_pages.main([str(tmp_path)]) == 0
    assert rule_pages.main(["--check", str(tmp_path)]) == 0
    assert not (tmp_path / "VA9.md").exists()
    assert (tmp_path / "notes.md").read_text() == "by hand"
