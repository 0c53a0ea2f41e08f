"""Write docs/diffusion.md: attention that ranks share, of real vllm-omni releases, against one rank and against fp64.

    python docs/make_diffusion.py            # write the page; some ten minutes on two cores
    python docs/make_diffusion.py --check    # exit 1 if the page is not what would be written

The releases are downloaded once into the cache of the tests; the vLLM that runs is that of `make vllm`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from codemods import vllm_api  # noqa: E402
from codemods.run import Options, migrate  # noqa: E402
from docs.made_page import main  # noqa: E402
from tests import wheels  # noqa: E402
from tests.corpus.omni_faults import broken  # noqa: E402

PAGE = ROOT / "docs" / "diffusion.md"

# Releases, and the vLLM that each is run under where it is not the installed one.
RELEASES = {"0.14.0": "0.14.0", "0.30.0": ""}

INTRODUCTION = """\
# Attention of diffusion models on several devices

vLLM-Omni shares a picture's tokens among devices: by Ulysses, where each takes some of the heads, by a ring, where keys
and values are passed on, or by both. `porting.check_diffusion` runs the attention of a `vllm_omni` package, a release's
or yours, on several ranks and on one:

<!-- run by: tests/porting/test_check_diffusion.py::ported -->
```sh
python -m porting.check_diffusion vllm_omni/ --before original/ --report check.html
```

Its options are those of [vitport-check](checking.md) that have a meaning here, with `--ranks` (of 2, 3 and 4) and
`--cases`; `--help` has them. Exit codes are the same. The package is imported as it
is, its own `__init__` left out, under the vLLM that is installed, which has to be one that it is for.

What is the package's own: the layer, its ways to share, its splitting and padding of a picture, its groups and their
calls. On a CPU, for which vllm-omni has no platform, the ranks are processes over gloo, and this stands in:

- a platform that says it is an NPU, so that the branches for NPUs run, whose device is the CPU. Attention of one rank
  is the package's `SDPABackend`; its kernels for NPUs and GPUs are not run.
- PyTorch's attention for CPUs in the place of the operator of CUDA that the ring calls.

Every call of `torch.distributed` is a [strict one](strict-collectives.md), batches are of two, and masks differ within
a batch. On an attached accelerator the platform, the kernels and the collectives (HCCL, NCCL) are the real ones, as
many ranks as there are devices; that was not run for this page, which had no machine with two accelerators.

Whether a combination is declined is the package's own word, and such a cell is never good. Where its splitting declines
what needs a mask and its attention takes the mask all the same, what that gives is told.

"""

FAULTS = """\
## The two faults of pull request 597

Release 0.14.0 with both put back: a branch for NPUs that calls the attention implementation as if it were a module, and
`.contiguous()` taken from what Ulysses gathers of the text. Ranks over plain gloo see neither: gloo copies what it is
given, and a GPU never takes the branch. Two ranks, before and after `vitport vllm_omni/`:

"""


PICTURES = """\
## A picture, drawn by one rank and by two

The test plan of that pull request, `text_to_image.py` with Qwen-Image, cache-dit and `--ulysses_degree 2`, in small:

<!-- run by: tests/porting/test_check_diffusion.py::test_the_newest_release_equals_one_rank -->
```sh
python -m porting.check_diffusion vllm_omni/ --ranks 2 --pipeline demo_app/models/shapes-image
```

The transformer is vllm-omni's own `QwenImageTransformer2DModel`, of release 0.30.0, with its own sequence parallelism
and its own cache-dit; it takes the plain PyTorch of its layers instead of a device's kernels. The weights, the text
encoder, the scheduler and the VAE are those of a Qwen-Image pipeline that [is trained here](small-models.md), and the
loop is that of diffusers; `--pipeline` takes the folder of any. Same seed, 12 steps, float32, "a red circle on a white
background". Without a cache every picture is also held against that of the transformer of diffusers. Two pictures are
equal if they are within half a level of 255; below them is how far they are.

"""


def page() -> str:
    parts = [INTRODUCTION]
    with TemporaryDirectory() as scratch:
        for release in RELEASES:
            report = checked(release, wheels.omni_files(release), Path(scratch))
            parts.append("\n".join(section(release, report)))
        parts.append(FAULTS + "\n".join(mended(Path(scratch))) + "\n")
        parts.append(PICTURES + "\n".join(pictures(Path(scratch))) + "\n")
    return "\n".join(parts)


def section(release: str, report: dict[str, Any]) -> Iterator[str]:
    """The largest differences of float32 and bfloat16 from one rank, as parts of the largest number."""
    ways = [level["name"] for level in report["levels"]]
    cells = {(r["model"], r["level"], r["dtype"]): r for r in report["results"]}
    cases = dict.fromkeys(result["model"] for result in report["results"])
    reasons: dict[str, int] = {}
    yield f"## vllm-omni {release}\n"
    yield "How far N ranks are from one rank, and one rank from fp64 attention, as a part of the largest number: in"
    yield "float32, in bfloat16. What passed is within 1e-05 and 0.03 of both."
    yield f"{report['verdict'][0].upper()}{report['verdict'][1:]}.\n"
    yield f"| case | {' | '.join(ways)} |"
    yield "|---" * (len(ways) + 1) + "|"
    for case in cases:
        row = [cell([cells[case, way, dtype] for dtype in ("float32", "bfloat16")], reasons) for way in ways]
        yield f"| {case} | {' | '.join(row)} |"
    yield ""
    for reason, number in reasons.items():
        yield f"{number}. {reason}"
    yield ""
    yield from silent(report)


def silent(report: dict[str, Any]) -> Iterator[str]:
    """What attention gives where splitting has declined, once for each text of it."""
    told: dict[str, dict[str, None]] = {}
    for result in report["results"]:
        for note in result["notes"] if result["status"] == "not run" and result["dtype"] == "float32" else ():
            told.setdefault(note, {})[f"{result['model']} ({result['level']})"] = None
    for note, where in told.items():
        yield f"- {', '.join(where)}: {note}"
    yield ""


def cell(results: Sequence[dict[str, Any]], reasons: dict[str, int]) -> str:
    if all(result["status"] == "passed" for result in results):
        name = "fp64 attention" if results[0]["level"] == "one rank" else "one rank"
        return ", ".join(f"{result['numbers'][name]:.0e}".replace("0e+00", "0") for result in results)
    told = []
    for result in results:
        reason = " ".join([result["summary"], *(f"({note})" for note in result["notes"])])
        if result["status"] == "not run":
            reason = result["summary"].partition(": ")[2]
            told.append(f"declined ({reasons.setdefault(reason, len(reasons) + 1)})")
        else:
            told.append(f"**{result['status']}** ({reasons.setdefault(reason, len(reasons) + 1)})")
    return ", ".join(dict.fromkeys(told))


def mended(scratch: Path) -> Iterator[str]:
    packages = {name: scratch / name / "vllm_omni" for name in ("before", "after")}
    for package in packages.values():
        shutil.copytree(wheels.omni_files("0.14.0"), package)
        for path, text in broken(package).items():
            (package / path).write_text(text, encoding="utf-8")
    migrate([packages["after"]], Options(target=vllm_api.resolve("0.14"), select=frozenset({"VA7", "VA80"})))
    cases = "picture alone,text in front,text at the rear"
    reports = {
        name: checked("0.14.0", package, scratch, "--ranks", "2", "--cases", cases)
        for name, package in packages.items()
    }
    yield "| case | way | dtype | before | after |"
    yield "|---|---|---|---|---|"
    for before, after in zip(reports["before"]["results"], reports["after"]["results"]):
        told = [outcome(result) for result in (before, after)]
        yield f"| {before['model']} | {before['level']} | {before['dtype']} | {' | '.join(told)} |"


def pictures(scratch: Path) -> Iterator[str]:
    """Writes them beside the page."""
    narrow = ("--ranks", "2", "--cases", "text in front", "--dtype", "float32")
    folder = ROOT / "demo_app" / "models" / "shapes-image"
    report = checked("0.30.0", wheels.omni_files("0.30.0"), scratch, *narrow, "--pipeline", str(folder))
    drawn = [result for result in report["results"] if "picture" in result["numbers"]]
    ways = list(dict.fromkeys(result["level"] for result in drawn))
    yield f"| | {' | '.join(ways)} |"
    yield "|---" * (len(ways) + 1) + "|"
    for row in dict.fromkeys(result["model"] for result in drawn):
        cells = [result for result in drawn if result["model"] == row]
        shown = []
        for result in cells:
            name = f"omni-{row}-{result['level']}.png".replace(", ", "-").replace(" ", "-")
            (PAGE.parent / "images" / name).write_bytes(base64.b64decode(result["numbers"]["picture"]))
            shown.append(f'<img src="images/{name}" width="160" alt="{row}, {result["level"]}">')
        yield f"| {row} | {' | '.join(shown)} |"
        yield f"| | {' | '.join(apart(result['numbers']) for result in cells)} |"


def apart(numbers: dict[str, Any]) -> str:
    """What is below a picture: levels away from others, and what came from the cache."""
    told = [f"{numbers[name]:.1g} from {name}" for name in ("diffusers", "one rank") if name in numbers]
    if "taken from the cache" in numbers:
        told.append(f"{numbers['taken from the cache']} steps from the cache")
    return ", ".join(told)


def outcome(result: dict[str, Any]) -> str:
    if result["status"] != "passed":
        return f"**{result['status']}**: {result['summary']}"
    furthest = max(result["numbers"].get(name, 0) for name in ("one rank", "fp64 attention"))
    return f"passed, {furthest:.0e}"


def checked(release: str, package: Path, scratch: Path, *options: str) -> dict[str, Any]:
    """The report of a check of that package, under the vLLM of that release."""
    report = scratch / "report.json"
    ahead = wheels.import_path(RELEASES[release]) if RELEASES[release] else []
    command = [wheels.vllm_python(), "-m", "porting.check_diffusion", package, "--report", report, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *ahead]))}
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise wheels.Unavailable(f"the check of vllm-omni {release} ended with exit code {done.returncode}")
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    sys.exit(main(PAGE, page, "Prove the attention of vllm-omni that ranks share."))
