"""VA502: what rotary_dim, base and rope_scaling said is said by rope_parameters, or nothing is changed at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.findings import FileReport, Severity
from codemods.rules.get_rope import GET_ROPE
from codemods.run import Options, migrate

FILE = """\
from vllm.model_executor.layers.rotary_embedding import get_rope

BASE = 500000.0


class Tower:
    def __init__(self, config, share: float, limit: int) -> None:
        self.heads = config.heads
        self.head_dim = config.width // self.heads
        self.share = share
        head_dim = config.width // config.heads
        half = self.head_dim // 2
        turned = int(self.head_dim * config.turned)
        self.rope = {call}
"""


@pytest.fixture
def port(tmp_path: Path) -> Callable[..., tuple[str, FileReport]]:
    """Ports FILE with this call in it; gives the call afterwards and the report."""

    def run(call: str, target: str = "0.13") -> tuple[str, FileReport]:
        path = tmp_path / "tower.py"
        path.write_text(FILE.format(call=call))
        (report,) = migrate([path], Options(target=vllm_api.resolve(target))).files
        start = path.read_text().index("self.rope = ") + len("self.rope = ")
        return path.read_text()[start:].rstrip("\n"), report

    return run


WHOLE_HEAD = [
    pytest.param("get_rope(head_dim, rotary_dim=head_dim, max_position=limit)", id="the same name"),
    pytest.param("get_rope(head_dim, head_dim, max_position=limit)", id="by position"),
    pytest.param("get_rope(head_dim, rotary_dim=self.head_dim, max_position=limit)", id="computed alike"),
    pytest.param("get_rope(head_dim, rotary_dim=config.width // config.heads, max_position=limit)", id="written out"),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim, max_position=limit, partial_rotary_factor=1.0)", id="all of the head"
    ),
]


@pytest.mark.parametrize("call", WHOLE_HEAD)
def test_the_whole_head_needs_no_argument(call: str, port) -> None:
    after, report = port(call)
    assert after == "get_rope(head_dim, max_position=limit)"
    assert not report.findings


SHARES = [
    pytest.param("head_dim // 2", "0.5", id="half"),
    pytest.param("half", "0.5", id="half, by name"),
    pytest.param("self.head_dim // 4", "0.25", id="a quarter"),
    pytest.param("int(head_dim * share)", "share", id="a product"),
    pytest.param("int(self.share * self.head_dim)", "self.share", id="a product the other way round"),
    pytest.param("turned", "config.turned", id="a product, by name"),
]


@pytest.mark.parametrize(("rotary_dim", "share"), SHARES)
def test_a_share_of_the_head_is_a_rope_parameter(rotary_dim: str, share: str, port) -> None:
    after, report = port(f"get_rope(head_dim, rotary_dim={rotary_dim}, max_position=limit)")
    assert after == f'get_rope(head_dim, rope_parameters={{"partial_rotary_factor": {share}}}, max_position=limit)'
    assert not report.findings


PARAMETERS = [
    pytest.param(
        "get_rope(head_dim, rotary_dim=half, max_position=limit, rope_parameters=config.rope_parameters)",
        "get_rope(head_dim, max_position=limit, "
        'rope_parameters={**(config.rope_parameters or {}), "partial_rotary_factor": 0.5})',
        id="added to what is there, if anything is",
    ),
    pytest.param(
        'get_rope(head_dim, rotary_dim=half, max_position=limit, rope_parameters={"rope_theta": BASE})',
        'get_rope(head_dim, max_position=limit, rope_parameters={"rope_theta": BASE, "partial_rotary_factor": 0.5})',
        id="added to what is written out",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=half, max_position=limit, rope_parameters=None)",
        'get_rope(head_dim, max_position=limit, rope_parameters={"partial_rotary_factor": 0.5})',
        id="in place of None",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim, max_position=limit, partial_rotary_factor=share)",
        'get_rope(head_dim, max_position=limit, rope_parameters={"partial_rotary_factor": share})',
        id="a factor of its own",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim, max_position=limit, base=BASE)",
        'get_rope(head_dim, max_position=limit, rope_parameters={"rope_theta": BASE})',
        id="a base that is a number",
    ),
    pytest.param(
        "get_rope(head_dim, head_dim // 2, limit, 10000.0, True)",
        'get_rope(head_dim, limit, True, rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})',
        id="everything by position, before 0.12",
    ),
    pytest.param(
        "get_rope(head_dim, head_dim // 2, limit, True)",
        'get_rope(head_dim, limit, True, rope_parameters={"partial_rotary_factor": 0.5})',
        id="everything by position, in 0.12",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim, max_position=limit, base=1e6, "
        'rope_scaling={"rope_type": "yarn", "factor": 4.0})',
        "get_rope(head_dim, max_position=limit, "
        'rope_parameters={"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0})',
        id="scaling that is written out",
    ),
]


@pytest.mark.parametrize(("call", "expected"), PARAMETERS)
def test_rope_parameters_say_what_the_old_arguments_said(call: str, expected: str, port) -> None:
    after, report = port(call)
    assert after == expected
    assert not report.findings


REFUSED = [
    pytest.param(
        "get_rope(head_dim, rotary_dim=config.rotary_dim, max_position=limit)",
        "which share of the head config.rotary_dim is",
        id="an unknown share",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim // 3, max_position=limit)",
        "which share of the head head_dim // 3 is",
        id="a share that floats do not hold",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=half, max_position=limit, partial_rotary_factor=share)",
        "both cut the head",
        id="cut twice",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim, max_position=limit, base=config.rope_theta)",
        "base=config.rope_theta is not a plain number",
        id="a configured base",
    ),
    pytest.param(
        "get_rope(head_dim, rotary_dim=head_dim, max_position=limit, base=BASE, rope_scaling=config.rope_scaling)",
        "what rope_scaling=config.rope_scaling holds",
        id="configured scaling",
    ),
    pytest.param("get_rope(rotary_dim=head_dim, **config.rope)", "passed on as a whole", id="unpacked arguments"),
    pytest.param("get_rope(head_dim, head_dim, limit, share)", "base or the style", id="an unclear fourth argument"),
]


@pytest.mark.parametrize(("call", "check"), REFUSED)
def test_what_cannot_be_shown_is_refused(call: str, check: str, port) -> None:
    after, report = port(call)
    assert after == call
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("VA502", Severity.ERROR)
    assert check in finding.message
    assert finding.remedy


@pytest.mark.parametrize(
    "call",
    [
        "get_rope(head_dim, limit, True)",
        "get_rope(head_dim, max_position=limit, rope_parameters=config.rope_parameters)",
        'get_rope(head_size=head_dim, max_position=limit, rope_parameters={"partial_rotary_factor": 0.5})',
    ],
)
def test_calls_of_the_target_are_left_alone(call: str, port) -> None:
    after, report = port(call)
    assert after == call
    assert not report.rewrites and not report.findings


def test_a_person_is_told_that_a_configured_factor_counts_now(port) -> None:
    _, report = port("get_rope(head_dim, rotary_dim=head_dim, max_position=limit, rope_parameters=config.rope)")
    assert [r.safety.partition(":")[0] for r in report.rewrites if r.code == "VA502"] == ["review"]


def test_names_that_only_rotary_dim_needed_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "tower.py"
    path.write_text(FILE.format(call="get_rope(head_dim, rotary_dim=half, max_position=limit)"))
    migrate([path], Options(target=vllm_api.resolve("0.13")))
    assert "half =" not in path.read_text()


@pytest.mark.parametrize("target", ["0.13", "0.16", "0.32"])
def test_every_target_takes_the_new_call(target: str) -> None:
    signature = vllm_api.Api.of(vllm_api.resolve(target)).signature(GET_ROPE)
    assert signature is not None
    assert signature.binds(1, ["max_position", "is_neox_style", "rope_parameters", "dtype"]) is None
    assert signature.binds(1, ["rotary_dim", "max_position"]) is not None


def test_somebody_elses_get_rope_is_left_alone(tmp_path: Path) -> None:
    text = "from flowers import get_rope\n\nrope = get_rope(64, rotary_dim=64)\n"
    path = tmp_path / "garden.py"
    path.write_text(text)
    (report,) = migrate([path], Options(target=vllm_api.resolve("0.13"))).files
    assert path.read_text() == text
    assert not report.findings


def test_entries_that_one_line_cannot_hold_have_a_line_each(port) -> None:
    call = """get_rope(
            self.head_dim,
            rotary_dim=self.head_dim,
            rope_parameters=config.rope_parameters_of_the_language_model,
            partial_rotary_factor=self.share,
            max_position=limit,
        )"""
    after, _ = port(call)
    assert (
        after
        == """get_rope(
            self.head_dim,
            rope_parameters={
                **(config.rope_parameters_of_the_language_model or {}),
                "partial_rotary_factor": self.share,
            },
            max_position=limit,
        )"""
    )
