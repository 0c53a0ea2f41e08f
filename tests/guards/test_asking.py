"""What a test of vLLM's version, or of what a vLLM has, gives at a target; and where that is not certain."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from codemods.guards.asking import Asking
from codemods.parsed_file import ParsedFile
from codemods.project import Project
from codemods.vllm_api import Api

HEAD = """\
import importlib.metadata
import importlib.metadata as md
import importlib.util
import os
from importlib.metadata import version

import packaging.version as pv
import vllm
import vllm.model_executor.models.utils as marked
import vllm.model_executor.models.vision as vision
from elsewhere.compat import vllm_version_is
from packaging.version import Version, parse
from vllm import __version__ as v
from vllm.config import VllmConfig
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention

MINIMUM = "0.13.0"
marked.merge_multimodal_embeddings = print
IS_013 = Version(vllm.__version__) >= Version("0.13")
PARTS = tuple(int(part) for part in vllm.__version__.split(".")[:2])
CHANGED = True
CHANGED = False
DEBUG = False


def at_least(wanted):
    "Whether vLLM is new enough."
    here = os.environ.get("PRETEND") or None
    if here is not None:
        found = here
    else:
        found = vllm.__version__
    try:
        return parse(found) >= parse(wanted)
    except ValueError:
        raise RuntimeError(found)


def unrelated(wanted):
    return wanted == "0.13.0"
"""


def ask(test: str, target: str = "0.32.0", head: str = HEAD) -> bool | None:
    text = f"{head}\nif {test}:\n    pass\n"
    file = ParsedFile(Path("model.py"), "model", text, ast.parse(text))
    (node,) = [n for n in file.tree.body if isinstance(n, ast.If)]
    return Asking(Project([file]), Api.of(target)).decided(file, node.test)


@pytest.mark.parametrize(
    ("test", "at_012", "at_032"),
    [
        ('Version(vllm.__version__) >= Version("0.13")', False, True),
        ('Version("0.13.0") > Version(vllm.__version__)', True, False),
        ('parse(v) < parse("0.13.0rc1")', True, False),
        ("pv.parse(vllm.__version__) >= pv.parse(MINIMUM)", False, True),
        ('vllm.__version__.startswith("0.12")', True, False),
        ('vllm.__version__.startswith(("0.11.", "0.12."))', True, False),
        ('v == "0.12.0"', True, False),
        ('v in ("0.11.2", "0.12.0")', True, False),
        ('Version(version("vllm")) >= Version("0.20")', False, True),
        ('importlib.metadata.version("vllm") == "0.32.0"', False, True),
        ('md.version("vllm") != "0.32.0"', True, False),
        ('tuple(map(int, vllm.__version__.split(".")[:2])) >= (0, 13)', False, True),
        ('[int(x) for x in v.split(".")[:2]] < [0, 13]', True, False),
        ("PARTS >= (0, 13)", False, True),
        ("PARTS[1] >= 13", False, True),
        ('Version(getattr(vllm, "__version__", "0")).release >= (0, 13)', False, True),
        ("Version(v).minor >= 13", False, True),
        ("vllm.__version_tuple__ >= (0, 13)", False, True),
        ("IS_013", False, True),
        ("not IS_013", True, False),
        ('vllm_version_is("0.12.0")', True, False),
        ('at_least("0.20")', False, True),
        ('not at_least("0.13") or vllm_version_is("0.12.0")', True, False),
        ('hasattr(vision, "get_vit_attn_backend")', True, True),
        ('hasattr(vision, "is_vit_use_data_parallel")', False, True),
        ('importlib.util.find_spec("vllm.multimodal.encoder_budget") is not None', False, True),
        ("pick(os) and IS_013", None, None),
        ("CHANGED.is_new() and IS_013", False, None),
    ],
)
def test_what_the_release_tells(test: str, at_012: bool | None, at_032: bool | None) -> None:
    assert ask(test, "0.12.0") is at_012
    assert ask(test, "0.32.0") is at_032


@pytest.mark.parametrize(
    "test",
    [
        "DEBUG",
        "True",
        "CHANGED",
        "os.name == 'nt'",
        'Version(os.environ["VLLM"]) >= Version("0.13")',
        'Version(version("torch")) >= Version("2.6")',
        'unrelated("0.13.0")',
        'Version(vllm.__version__) >= Version(os.environ["MINIMUM"])',
        'vllm.__version__ >= "0.9.0"',  # as text "0.32.0" is less: what was meant is not what runs
        'vllm.__version__.startswith("0.3")',  # 0.3, or 0.30 and all after
        'hasattr(VllmConfig, "something_of_its_base")',
        'hasattr(vllm, "multimodal")',  # a submodule, there once something imported it
        'hasattr(os, "fork")',
        'hasattr(vision, "_patched_by_us")',  # in no vLLM: a mark of the plugin's
        'hasattr(marked, "merge_multimodal_embeddings")',  # gone by 0.32, and put there again below
        "VllmConfig is not None",
        "float(vllm.__version__[:4]) >= 0.13",
        "pop().is_old and IS_013",
    ],
)
def test_what_it_does_not_tell(test: str) -> None:
    assert ask(test) is None


def test_a_name_that_is_bound_to_something_else_is_not_vllms() -> None:
    own = "def vllm_version_is(text):\n    return text in ()\n\nclass vllm:\n    __version__ = '0.1'\n"
    assert ask('vllm_version_is("0.32.0")', head=own) is None
    assert ask('vllm.__version__ == "0.1"', head=own) is None


def test_a_constant_that_a_function_rebinds_is_not_certain() -> None:
    head = HEAD + "\n\ndef pretend():\n    global IS_013\n    IS_013 = False\n"
    assert ask("IS_013", head=head) is None
