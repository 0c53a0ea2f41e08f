"""What a user installs: the distribution, its extras, the conda environment and the two make commands."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
PACKAGE_LIST = {"jupyterlab", "ipywidgets", "torch", "torch-npu", "vllm", "libcst", "gradio"}


def declared_bounds() -> dict[str, set[SpecifierSet]]:
    """Every bound that pyproject.toml sets on a package, over base dependencies and extras."""
    bounds: dict[str, set[SpecifierSet]] = {}
    for line in [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]:
        requirement = Requirement(line)
        bounds.setdefault(canonicalize_name(requirement.name), set()).add(requirement.specifier)
    return bounds


def conda_bounds() -> dict[str, SpecifierSet]:
    """Every bound of environment.yml, conda's own packages and pip's together."""
    lines = []
    for entry in yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]:
        lines += entry["pip"] if isinstance(entry, dict) else [entry]
    requirements = [Requirement(line) for line in lines if not line.startswith("--editable")]
    return {canonicalize_name(requirement.name): requirement.specifier for requirement in requirements}


def test_environment_holds_the_whole_package_list():
    assert set(conda_bounds()) - {"python", "pip"} >= PACKAGE_LIST


def test_every_package_of_the_list_is_in_pyproject():
    assert set(declared_bounds()) >= PACKAGE_LIST


def test_environment_and_pyproject_set_the_same_bounds():
    ours = declared_bounds()
    conda = {name: {bound} for name, bound in conda_bounds().items() if name not in ("python", "pip")}
    assert conda == {name: ours[name] for name in conda}


def test_environment_and_pyproject_want_the_same_python():
    assert conda_bounds()["python"] == SpecifierSet(PROJECT["requires-python"])


def test_classifiers_name_the_supported_pythons():
    named = {
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    }
    assert named == {"3.10", "3.11", "3.12", "3.13"}
    assert all(version in SpecifierSet(PROJECT["requires-python"]) for version in named)


def test_environment_installs_this_project():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    assert "--editable ." in dependencies[-1]["pip"]


def test_the_codemod_alone_needs_libcst_alone():
    assert [Requirement(line).name for line in PROJECT["dependencies"]] == ["libcst"]


def test_no_bound_keeps_a_newer_release_out():
    operators = {part.operator for bounds in declared_bounds().values() for bound in bounds for part in bound}
    assert operators == {">="}


def test_extras():
    assert set(PROJECT["optional-dependencies"]) == {"porting", "cpu", "cuda", "npu", "notebooks", "demo", "test"}


@pytest.mark.parametrize("command", PROJECT["scripts"])
def test_the_commands_are_there(command: str):
    module, _, function = PROJECT["scripts"][command].partition(":")
    tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licence = next(name for name in names if name.endswith("/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = {
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if ".dist-info/" not in name} == files


# The make commands, with a vitport that rewrites one file of what it is given, reports, and ends as it is told to.
FAKE_PYTHON = f"""#!/bin/sh
[ "$1" = -c ] && echo 0.32.0
[ "$1" = -m ] || exit 0
module=$2; shift 2
[ "$module" = codemods.working_copy ] && exec {sys.executable} -m codemods.working_copy "$@"
[ "$module" = porting.check ] && {{ echo "checked $*"; exit 0; }}
echo "vitport $*"
case " $* " in *" --report "*) ;; *) exit "$FAKE" ;; esac
if [ -d "$1" ]; then echo "ported" > "$1/model.py"; else echo "ported" > "$1"; fi
for report; do :; done
echo "report" > "$report"
exit "$FAKE"
"""

Make = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Run make with the fake vitport; the copies go to `tmp_path / "migrated"`."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(FAKE_PYTHON, encoding="utf-8")
    python.chmod(0o755)
    (environment / ".base").touch()
    (environment / ".test").touch()

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        places = [f"VENV={environment}", f"MIGRATED={tmp_path / 'migrated'}"]
        command = [
            "make",
            "--no-print-directory",
            *arguments,
            *(place for place in places if place[:5] not in str(arguments)),
        ]
        variables = {**os.environ, "FAKE": str(status), "MAKEFLAGS": ""}
        return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of models of the user's own; its name has a space."""
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "model.py").write_text("original\n", encoding="utf-8")
    return folder


def test_migrate_ports_a_copy_and_leaves_the_original(make: Make, models: Path, tmp_path: Path):
    result = make("migrate", f"MODELS={models}")
    assert result.returncode == 0, result.stderr
    assert (models / "model.py").read_text(encoding="utf-8") == "original\n"
    assert (tmp_path / "migrated" / "my models" / "model.py").read_text(encoding="utf-8") == "ported\n"


@pytest.mark.parametrize("status", [0, 1])
def test_check_proves_the_ported_copy_beside_the_original(make: Make, models: Path, tmp_path: Path, status: int):
    """For the vLLM that is there to prove it, and also where the port left something to a person."""
    copy = tmp_path / "migrated" / "my models"
    result = make("check", f"MODELS={models}", f"VLLM_PYTHON={tmp_path / 'venv' / 'bin' / 'python'}", status=status)
    assert result.returncode == 0, result.stderr
    assert f"vitport {copy} --target 0.32.0" in result.stdout
    assert f"checked {copy} --before {models} --report {copy}.check.html" in result.stdout


def test_check_without_a_vllm_says_so(make: Make, models: Path):
    result = make("check", f"MODELS={models}", "VLLM_PYTHON=true")
    assert result.returncode == 2
    assert "make check: no vLLM in true; give one with VLLM_PYTHON=PATH" in result.stderr


def test_notebooks_open_on_loopback_at_the_first(make: Make, tmp_path: Path):
    result = make("notebooks", f"VLLM_PYTHON={tmp_path / 'venv' / 'bin' / 'python'}", "JUPYTER=--no-browser")
    assert result.returncode == 0, result.stderr
    assert "--ip=127.0.0.1" in result.stdout
    assert result.stdout.splitlines()[-1].endswith(" notebooks/00_start_here.ipynb --no-browser")


def test_notebooks_without_jupyterlab_say_so(make: Make):
    result = make("notebooks", "VLLM_PYTHON=false")
    assert result.returncode == 2
    assert "make notebooks: false has no JupyterLab; give it one with: false -m pip install" in result.stderr


def test_migrate_starts_from_the_original_each_time(make: Make, models: Path, tmp_path: Path):
    make("migrate", f"MODELS={models}")
    (models / "added.py").touch()
    result = make("migrate", f"MODELS={models}")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "migrated" / "my models" / "added.py").exists()


def test_migrate_of_a_file_ports_it_among_those_beside_it(make: Make, models: Path, tmp_path: Path):
    (models / "caller.py").write_text("original\n", encoding="utf-8")
    result = make("migrate", f"MODELS={models / 'model.py'}")
    assert result.returncode == 0, result.stderr
    copy = tmp_path / "migrated" / "my models"
    assert f"Ported copy: {copy / 'model.py'}, its report: {copy}.report.md." in result.stdout
    assert [(copy / name).read_text(encoding="utf-8") for name in ("model.py", "caller.py")] == [
        "ported\n",
        "original\n",
    ]


def test_check_of_a_file_proves_that_file(make: Make, models: Path, tmp_path: Path):
    copy, python = tmp_path / "migrated" / "my models", tmp_path / "venv" / "bin" / "python"
    result = make("check", f"MODELS={models / 'model.py'}", f"VLLM_PYTHON={python}")
    assert result.returncode == 0, result.stderr
    expected = f"checked {copy / 'model.py'} --before {models / 'model.py'} --report {copy}.check.html"
    assert expected in result.stdout


@pytest.mark.parametrize("goal", ["migrate", "check"])
def test_work_on_a_copy_is_kept_and_said(make: Make, models: Path, tmp_path: Path, goal: str):
    arguments = (f"MODELS={models}", f"VLLM_PYTHON={tmp_path / 'venv' / 'bin' / 'python'}")
    copy = tmp_path / "migrated" / "my models"
    make("migrate", *arguments)
    (copy / "model.py").write_text("by hand\n", encoding="utf-8")
    os.utime(f"{copy}.report.md", ns=(0, 0))  # clocks of files are coarse
    result = make(goal, *arguments)
    assert result.returncode == 0, result.stderr
    assert f"it is kept as {copy}.1." in result.stdout
    assert Path(f"{copy}.1", "model.py").read_text(encoding="utf-8") == "by hand\n"
    assert (copy / "model.py").read_text(encoding="utf-8") == "ported\n"


def test_only_of_a_whole_plugin_it_is_said_what_nothing_reaches(make: Make, models: Path):
    assert "--ignore VA662" in make("migrate", f"MODELS={models}").stdout
    (models / "pyproject.toml").touch()
    assert "--ignore VA662" not in make("migrate", f"MODELS={models}").stdout


@pytest.mark.parametrize("goal", ["migrate", "check"])
def test_what_must_not_be_copied_is_refused_before_anything_runs(make: Make, tmp_path: Path, goal: str):
    result = make(goal, f"MODELS={tmp_path}", f"VLLM_PYTHON={tmp_path / 'venv' / 'bin' / 'python'}")
    assert result.returncode == 2
    assert result.stderr.startswith(f"make {goal}: MODELS={tmp_path}: {tmp_path} holds ")
    assert result.stdout == ""


def test_migrate_without_models_ports_the_example(make: Make, tmp_path: Path):
    assert make("migrate").returncode == 0
    assert (tmp_path / "migrated" / "orchard_vl_plugin" / "pyproject.toml").exists()


def test_migrate_passes_the_target_on(make: Make, models: Path):
    assert "--target 0.32" in make("migrate", f"MODELS={models}", "TARGET=0.32").stdout
    assert "--target" not in make("migrate", f"MODELS={models}").stdout


def test_migrate_shows_the_difference_before_it_writes(make: Make, models: Path):
    first, second = [
        line for line in make("migrate", f"MODELS={models}").stdout.splitlines() if line.startswith("vitport")
    ]
    assert "--diff" in first
    assert "--diff" not in second


def test_findings_that_remain_are_shown_and_are_no_failure(make: Make, models: Path):
    result = make("migrate", f"MODELS={models}", status=1)
    assert result.returncode == 0
    assert "FINDINGS REMAIN" in result.stdout


def test_a_run_that_could_not_read_its_input_fails(make: Make, models: Path):
    result = make("migrate", f"MODELS={models}", status=2)
    assert result.returncode != 0
    assert "was ported, see the error above" in result.stderr


@pytest.mark.parametrize("inside", ["", "sub"])
def test_a_ported_copy_is_not_ported_again(make: Make, tmp_path: Path, inside: str):
    copy = tmp_path / "migrated" / "models" / inside
    copy.mkdir(parents=True)
    (copy / "model.py").write_text("ported\n", encoding="utf-8")
    result = make("migrate", f"MODELS={copy}")
    assert result.returncode != 0
    assert "give the original" in result.stderr
    assert (copy / "model.py").exists()


def test_models_that_hold_the_copies_are_refused(make: Make, tmp_path: Path):
    result = make("migrate", f"MODELS={tmp_path}")
    assert result.returncode != 0
    assert "give the folder of the models alone" in result.stderr


@pytest.mark.parametrize("models", ["", "no/such/folder"])
def test_missing_models_get_one_clear_line(make: Make, models: str):
    result = make("migrate", f"MODELS={models}")
    assert result.returncode != 0
    assert result.stderr.splitlines()[0] == f"make migrate: MODELS={models} does not exist; give a file or a folder"


@pytest.mark.parametrize("goal", ["migrate", "test"])
def test_no_usable_python_gets_one_clear_line(make: Make, tmp_path: Path, goal: str):
    result = make(goal, "PYTHON=", f"VENV={tmp_path / 'none'}")
    assert result.returncode != 0
    assert result.stderr.splitlines()[0].startswith("make: no Python 3.10 or newer")


def test_the_environment_of_make_vllm_is_found_without_pytest():
    """`make notebooks` asks in an environment that has what notebooks need, and no more."""
    code = (
        "import sys; sys.modules['pytest'] = None; import tests.wheels; print(tests.wheels.environment_path('0.32.0'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "vllm-env" in done.stdout
