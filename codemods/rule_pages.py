"""`python -m codemods.rule_pages docs/rules`: a page for each rule, made from the rule's own words and examples."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from codemods.rule import Example, Rule

MARK = "<!-- Made by `python -m codemods.rule_pages docs/rules`. Change the rule, not this page. -->"


def page(rule: Rule) -> str:
    """A rule's page as Markdown; `vitport --explain` prints the same text."""
    return "\n".join(_page(rule)) + "\n"


def index(rules: Sequence[Rule]) -> str:
    lines = [
        MARK,
        "",
        "# Rules",
        "",
        "In the order a run applies them.",
        "",
        "| code | name | what it does | safety |",
        "|---|---|---|---|",
    ]
    lines += [f"| [{r.code}]({r.code}.md) | {r.name} | {_cell(r.summary)} | {_cell(r.safety)} |" for r in rules]
    return "\n".join(lines) + "\n"


def pages(rules: Sequence[Rule]) -> dict[str, str]:
    """Every file of the folder: name and content."""
    return {"README.md": index(rules), **{f"{rule.code}.md": f"{MARK}\n\n{page(rule)}" for rule in rules}}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages, or with --check only compare them. Returns 1 where a compared page is stale."""
    parser = argparse.ArgumentParser(prog="python -m codemods.rule_pages", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages are, usually docs/rules")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is missing or stale")
    arguments = parser.parse_args(argv)

    from codemods.rules import RULES

    folder: Path = arguments.folder
    wanted = pages(RULES)
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    stale = [name for name in sorted(wanted) if found.get(name) != wanted[name]]
    # A page of a rule that is gone. Pages without the mark were written by somebody and are none of our business.
    gone = [name for name in sorted(found) if name not in wanted and found[name].startswith(MARK)]
    if arguments.check:
        for name in stale + gone:
            print(f"{folder / name}: stale; run python -m codemods.rule_pages {folder}", file=sys.stderr)
        return 1 if stale or gone else 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (folder / name).write_text(wanted[name], encoding="utf-8", newline="\n")
    for name in gone:
        (folder / name).unlink()
    return 0


def _page(rule: Rule) -> Iterator[str]:
    yield f"# {rule.code}: {rule.name}"
    yield ""
    yield rule.summary
    yield ""
    # A safe rule may still mark a single rewrite for review; the rule as a whole cannot know.
    marked = "safe, unless the report marks a rewrite for review"
    yield f"- **Safety**: {rule.safety if rule.review or rule.report_only else marked}"
    yield f"- **Follows**: {rule.follows}"
    words = ", ".join(f"`{name}`" for name in sorted(rule.names | rule.words))
    yield f"- **Looks at files that mention**: {words or 'anything'}"
    if rule.requires:
        yield f"- **Runs only together with**: {', '.join(rule.requires)}"
    yield ""
    yield "## Why"
    yield ""
    yield rule.why
    for example in rule.examples:
        yield ""
        yield from _example(example)


def _example(example: Example) -> Iterator[str]:
    versions = f"from vLLM {example.source} to {example.target}"
    if example.before == example.after:
        yield f"## Left alone{', with a finding' if example.refused else ''}, {versions}"
        body, language = example.before.strip("\n"), "python"
    else:
        yield f"## Example{', with a finding for the rest' if example.refused else ''}, {versions}"
        body, language = _diff(example), "diff"
    yield ""
    yield f"```{language}"
    yield body
    yield "```"


def _diff(example: Example) -> str:
    """The whole example, as it is short, with the lines that go and come marked."""
    before, after = example.before.strip("\n").split("\n"), example.after.strip("\n").split("\n")
    lines = difflib.unified_diff(before, after, n=len(before), lineterm="")
    return "\n".join(line.rstrip() for line in list(lines)[3:])  # without the two file names and the only range


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
