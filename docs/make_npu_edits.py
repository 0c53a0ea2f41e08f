"""Write docs/npu-edits.md: what the rules for devices change in whole releases of vllm-omni and vllm-ascend.

    python docs/make_npu_edits.py            # write the page
    python docs/make_npu_edits.py --check    # exit 1 if the page is not what would be written

The wheels of the releases are downloaded once into the cache of the tests. An edit for which `REASONS` has no reason
stops the command: nobody has looked at it yet.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from codemods import vllm_api  # noqa: E402
from codemods.findings import FileReport  # noqa: E402
from codemods.run import Options, migrate  # noqa: E402
from docs.made_page import main  # noqa: E402
from tests import wheels  # noqa: E402

PAGE = ROOT / "docs" / "npu-edits.md"
RULES = frozenset({"VA801", "VA802", "VA803"})

# package, release, the vLLM that it is for (the oldest target, 0.13, where that is older), where its files are
RELEASES: tuple[tuple[str, str, str, Callable[[str], Path]], ...] = (
    ("vllm-omni", "0.14.0", "0.14", wheels.omni_files),
    ("vllm-omni", "0.20.0", "0.20", wheels.omni_files),
    ("vllm-omni", "0.30.0", "0.30", wheels.omni_files),
    ("vllm-ascend", "0.11.0", "0.13", wheels.ascend_files),
    ("vllm-ascend", "0.18.0", "0.18", wheels.ascend_files),
)

# what was found by hand for each edit, and for each finding of the two rules that edit: (package, release, file, line)
REASONS: dict[tuple[str, str, str, int], str] = {
    ("vllm-omni", "0.14.0", "diffusion/distributed/cfg_parallel.py", 69): (
        "Where `output_slice` is given, the prediction is a slice on the second dimension, which has gaps from a "
        "batch of two on. `GroupCoordinator.all_gather` of this release hands it to `all_gather_into_tensor` as it is. "
        "So it is in 0.16 and 0.18; vllm-omni 0.20 mended it inside `all_gather`."
    ),
}

INTRODUCTION = """\
# What the rules for devices change

[VA801](rules/VA801.md), [VA802](rules/VA802.md) and [VA803](rules/VA803.md), run over every Python file of releases
of vllm-omni and vllm-ascend as they were published, each with the vLLM that it is for (vllm-ascend 0.11.0 with 0.13,
the oldest target). These packages run on NPUs, so an edit here is a fault that was found, or a mistake of the rules.
Each edit was looked at, and the reason why it is right was written down; the command that makes the page,
`python docs/make_npu_edits.py`, stops at an edit that has none.
"""


def page() -> str:
    found = [(package, release, reports(target, files(release))) for package, release, target, files in RELEASES]
    written = [INTRODUCTION, totals(found), "## Edits", *edits(found), "## Findings", *findings(found), literals(found)]
    return "\n\n".join(part.rstrip("\n") for part in written) + "\n"


Found = list[tuple[str, str, dict[str, FileReport]]]


def reports(target: str, folder: Path) -> dict[str, FileReport]:
    """The reports of a package's files by their path in it."""
    done = migrate([folder], Options(target=vllm_api.resolve(target), write=False, select=RULES))
    return {Path(file.path).relative_to(folder).as_posix(): file for file in done.files}


def totals(found: Found) -> str:
    rows = ["| release | files | edits | findings of VA801 | of VA802 | notes of VA803 |", "|---|---|---|---|---|---|"]
    for package, release, files in found:
        count = Counter(f.code for file in files.values() for f in file.findings)
        changed = sum(len(file.rewrites) for file in files.values())
        counts = " | ".join(str(count[code]) for code in sorted(RULES))
        rows.append(f"| {package} {release} | {len(files)} | {changed} | {counts} |")
    return "\n".join(rows)


def edits(found: Found) -> Iterator[str]:
    rows = [
        f"| {package} {release} | `{path}:{edit.line}` | {edit.code} | {cell(edit.message)} | "
        f"{cell(reason(package, release, path, edit.line, edit.message))} |"
        for package, release, files in found
        for path, file in files.items()
        for edit in file.rewrites
    ]
    yield "\n".join(
        ["| release | place | rule | what the report says | why it is right |", "|---|---|---|---|---|", *rows]
    )


def findings(found: Found) -> Iterator[str]:
    rows = [
        f"| {package} {release} | `{path}:{f.line}` | {f.code}, {f.severity.value} | {cell(f.message)} | "
        f"{cell(reason(package, release, path, f.line, f.message))} |"
        for package, release, files in found
        for path, file in files.items()
        for f in file.findings
        if f.code in ("VA801", "VA802")
    ]
    head = ["| release | place | rule | what the report says | what is so |", "|---|---|---|---|---|"]
    yield "\n".join([*head, *rows]) if rows else "VA801 and VA802 leave nothing to a person in these releases."


def literals(found: Found) -> str:
    """What VA803 notes, counted: each is true, and says nothing of whether the place is ever reached on an NPU."""
    kinds = [
        Counter(f.message for file in files.values() for f in file.findings if f.code == "VA803") for *_, files in found
    ]
    names = sorted({kind for count in kinds for kind in count})
    columns = " | ".join(f"{package} {release}" for package, release, _ in found)
    rows = [f"| {cell(name)} | {' | '.join(str(count[name] or '') for count in kinds)} |" for name in names]
    introduction = (
        "VA803 notes what only CUDA has outside of places that are for one device anyway. Each note is true of its "
        "line; whether an NPU ever gets there is not known to the rule, which is why it edits nothing:"
    )
    return "\n".join([introduction, "", f"| note | {columns} |", "|---|" + "---|" * len(found), *rows])


def reason(package: str, release: str, path: str, line: int, message: str) -> str:
    key = (package, release, path, line)
    if key not in REASONS:
        sys.exit(f"make_npu_edits.py: {package} {release}, {path}:{line}: no reason is given for: {message}")
    return REASONS[key]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "Show what the rules for devices change."))
