"""A run for several vLLM releases at once: one text that serves all of them, or the file as it was and why."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from codemods import joined_text
from codemods.findings import Finding, Severity
from codemods.guards.settle import settled
from codemods.inputs import Input
from codemods.parsed_file import ParsedFile
from codemods.plan import Plan
from codemods.run import Options, Setting, port
from codemods.verify import RULE as SELF_CHECK

Texts = dict[str, dict[Path, ParsedFile]]  # release -> file -> its text for that release


def port_for_all(
    inputs: list[Input], setting: Setting, options: Options, frozen: dict[Path, Finding]
) -> tuple[dict[str, Plan], dict[Path, list[Finding]]]:
    """Set `after` of every file that one text can port to all targets; the others are in `frozen`, with the reason.

    Gives the plan for each target on the files as they are, and what is to be told besides.
    """
    while True:
        known = len(frozen)
        plans: dict[str, Plan] = {}
        alone: Texts = {}
        for release in options.targets:
            copies = _copies(inputs, {})
            plans[release] = port(copies, setting, _for(options, release), frozen)
            alone[release] = _texts(copies)
            for entry, copy in zip(inputs, copies):
                entry.error = entry.error or copy.error
        if len(frozen) > known:
            continue  # a file that cannot be ported to one target stays as it is for all
        joined = _joined(alone, frozen)
        if len(frozen) == known:
            notes = _check(inputs, setting, options, plans, alone, joined, frozen)
        if len(frozen) == known:
            break
    for entry in inputs:
        new = joined.get(entry.path)
        entry.after = new if new is not None and entry.parsed is not None and new.text != entry.parsed.text else None
    return plans, notes


def _for(options: Options, release: str) -> Options:
    return replace(options, target=release, also=tuple(r for r in options.targets if r != release))


def _copies(inputs: Sequence[Input], texts: dict[Path, ParsedFile]) -> list[Input]:
    return [replace(entry, parsed=texts.get(entry.path, entry.parsed), after=None) for entry in inputs]


def _texts(inputs: Sequence[Input]) -> dict[Path, ParsedFile]:
    return {entry.path: new for entry in inputs if (new := entry.after or entry.parsed) is not None}


def _joined(alone: Texts, frozen: dict[Path, Finding]) -> dict[Path, ParsedFile]:
    """The newest target's texts, with imports that serve all targets."""
    from codemods.apply import apply

    newest = list(alone)[-1]
    found: dict[Path, ParsedFile] = {}
    for path, file in alone[newest].items():
        texts = {release: alone[release][path] for release in alone}
        found[path] = file
        if len({text.text for text in texts.values()}) > 1 and path not in frozen:
            try:
                edits = joined_text.edits(texts)
            except joined_text.JoinError as error:
                frozen[path] = _refused(list(alone), str(error))
                continue
            found[path] = ParsedFile.of(apply(file.text, ast.parse(file.text), edits) if edits else file.text, file)
    return found


def _check(
    inputs: list[Input],
    setting: Setting,
    options: Options,
    plans: dict[str, Plan],
    alone: Texts,
    joined: dict[Path, ParsedFile],
    frozen: dict[Path, Finding],
) -> dict[Path, list[Finding]]:
    """Port the joined texts to each target: the arms of guards that stay become right, and then nothing may change."""
    notes: dict[Path, list[Finding]] = {}
    for last in (False, True):
        for release in options.targets:
            copies = _copies(inputs, joined)
            plan = port(copies, setting, _for(options, release), failed := dict(frozen))
            frozen.update(
                {path: _refused(options.targets, f.message) for path, f in failed.items() if path not in frozen}
            )
            if not last:
                joined.update(_texts(copies))
                continue
            for path, why in _wrong(plan, plans[release], release):
                frozen.setdefault(path, _refused(options.targets, why))
            for path in _other_bodies(setting, options, alone[release], plan, release):
                notes.setdefault(path, []).append(_otherwise(path, plans, options, release))
    return notes


def _wrong(plan: Plan, own: Plan, release: str) -> Iterator[tuple[Path, str]]:
    """What a release would still have otherwise in the joined texts."""
    known = {(p.file.path, f.code, f.message) for p in own.files for f in p.findings}
    for file in plan.open_files:
        if file.edits:
            first = file.rewrites[0] if file.rewrites else None
            yield file.file.path, f"for {release}, {first.message if first else 'more would have to change'}"
        for finding in file.findings:
            new = (file.file.path, finding.code, finding.message) not in known
            if new and finding.severity is Severity.ERROR:
                yield file.file.path, f"for {release}, {finding.message}"


def _other_bodies(
    setting: Setting, options: Options, alone: dict[Path, ParsedFile], plan: Plan, release: str
) -> Iterator[Path]:
    """Files of which a port to this release alone is another, imports aside."""
    views = settled(list(alone.values()), setting.neighbours, release, _for(options, release).also, options.keep_guards)
    for file in plan.open_files:
        text = alone.get(file.file.path)
        if text is not None:
            own = views[text.path].file if text.path in views else text
            if joined_text.body(own) != joined_text.body(file.file):
                yield text.path


def _otherwise(path: Path, plans: dict[str, Plan], options: Options, release: str) -> Finding:
    """That a release gets the newest one's text, and the first thing that a port to it alone has otherwise."""
    own, newest = (
        {(r.line, r.message) for p in plans[which].files if p.file.path == path for r in p.rewrites}
        for which in (release, options.target)
    )
    line, what = min(own - newest, default=(1, "some things are left out that the newer one needs"))
    return Finding(
        line,
        1,
        SELF_CHECK.code,
        Severity.WARNING,
        f"vLLM {release} gets what fits {options.target}, which is valid there; for {release} alone, {what}",
        f"Compare with what --target {release} alone gives, and see whether the difference matters.",
    )


def _refused(targets: Sequence[str], why: str) -> Finding:
    return Finding(
        1,
        1,
        SELF_CHECK.code,
        Severity.ERROR,
        f"the file is left as it is: one text cannot serve vLLM {' and '.join(targets)}: {why}",
        "Port it to one target at a time and keep a branch for each, or guard what differs by hand.",
    )
