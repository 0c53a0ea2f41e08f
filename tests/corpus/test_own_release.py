"""The model files of vLLM releases, each ported to its own release: nothing is changed or said but real faults.

Every change and every finding needs a row in `FAULTS` that tells why the file is wrong, or worth a word, as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from codemods.findings import FileReport
from codemods.run import Options, migrate
from tests.corpus.vision_files import MULTI_HEAD

RELEASES = ("0.13.0", "0.14.0", "0.15.0", "0.18.1", "0.20.2", "0.24.0", "0.28.0", "0.32.0")
FOLDERS = ("model_executor/models", "models")  # later releases have both

STAYS = "0.13 has MultiHeadAttention, and no MMEncoderAttention that could do without cu_seqlens: a note, no fault"
MENDED = frozenset({"VA644"})  # has a test of its own: where something is edited, all is planned twice
CUDA = "a stream, an event or an autocast of CUDA's alone, in a file that is for any device: a note, no fault"

# (release, file, rule): (how many lines of the report, why)
FAULTS: dict[tuple[str, str, str], tuple[int, str]] = {
    **{("0.13.0", f"model_executor/models/{name}.py", "VA101"): (1, STAYS) for name in MULTI_HEAD},
    **{
        (release, f"{folder}models/{name}.py", "VA803"): (count, CUDA)
        for release, folder, name, count in (
            *((release, "model_executor/", "nemotron", 2) for release in RELEASES if release < "0.28"),
            ("0.15.0", "model_executor/", "kimi_k25", 1),
            *(("0.20.2", "model_executor/", name, 1) for name in ("deepseek_v4", "deepseek_v4_mtp")),
            *((release, "", "deepseek_v4/attention", 3) for release in ("0.24.0", "0.28.0", "0.32.0")),
            ("0.32.0", "", "deepseek_v41/attention", 1),
            ("0.32.0", "", "deepseek_v41/common/engram", 2),
            ("0.32.0", "", "qwen4_exp/common/ngram_embedding", 2),
        )
    },
    ("0.13.0", "model_executor/models/jais2.py", "VA502"): (
        1,
        "get_rope(rotary_dim=) is a TypeError: 0.13 took the parameter out, and forgot this call",
    ),
    ("0.13.0", "model_executor/models/moonvit.py", "VA201"): (
        1,
        "a function of its own calls flash-attn: no platform without that kernel runs it, no device can replace it",
    ),
    ("0.14.0", "model_executor/models/nemotron_parse.py", "VA603"): (
        2,
        "vllm.transformers_utils.tokenizer has no AnyTokenizer in 0.14: an ImportError",
    ),
    ("0.15.0", "model_executor/models/nemotron_parse.py", "VA601"): (
        1,
        "vllm.transformers_utils.tokenizer has no TokenizerLike in 0.15: an ImportError",
    ),
    ("0.15.0", "model_executor/models/glm4_moe_lite.py", "VA901"): (
        1,
        "make_expert_params_mapping is called without the model that it needs since 0.14: a TypeError",
    ),
    **{
        (release, "model_executor/models/cohere_asr.py", "VA612"): (
            1,
            "pad_dummy_encoder_prompt is overridden, which nothing has read since 0.15",
        )
        for release in ("0.20.2", "0.24.0", "0.28.0", "0.32.0")
    },
    ("0.32.0", "models/glm5next/common/multimodal.py", "VA612"): (
        1,
        "_hf_processor_applies_updates is overridden, which nothing has called since 0.29",
    ),
    ("0.24.0", "models/minimax_m3/common/mm_preprocess.py", "VA612"): (
        1,
        "_get_data_parser is overridden, which nothing has called since 0.16: its parser is not used",
    ),
    ("0.24.0", "model_executor/models/mimo_v2_omni.py", "VA201"): (
        1,
        "its windowed attention calls flash-attn itself: no platform without that kernel runs it",
    ),
}


@pytest.mark.parametrize("release", RELEASES)
def test_only_faults_are_changed_or_told(release: str, model_files: Callable[[str], Path]) -> None:
    vllm = model_files(release)
    folders = [vllm / folder for folder in FOLDERS if (vllm / folder).is_dir()]
    report = migrate(folders, Options(release, write=False, ignore=MENDED))
    assert not [file.path for file in report.files if file.error]

    found = Counter(
        (name_in(vllm, file), line.code) for file in report.files for line in [*file.rewrites, *file.findings]
    )
    expected = {(name, rule): count for (of, name, rule), (count, _) in FAULTS.items() if of == release}
    unexpected = [
        f"{name_in(vllm, file)}:{line.line}: {line.code} {line.message}"
        for file in report.files
        for line in [*file.rewrites, *file.findings]
        if (name_in(vllm, file), line.code) not in expected
    ]
    assert not unexpected, "\n".join(unexpected)
    assert found == expected
    assert {name_in(vllm, file) for file in report.files if file.changed} == {
        name_in(vllm, file) for file in report.files if file.rewrites
    }


@pytest.mark.parametrize("release", RELEASES)
def test_the_one_split_that_gathers_is_mended(release: str, model_files: Callable[[str], Path]) -> None:
    """From 0.13 on dots_ocr mixes q, k and v from two tensor-parallel ranks on: docs/proof.md."""
    vllm = model_files(release)
    report = migrate([vllm / FOLDERS[0]], Options(release, write=False, select=MENDED))
    assert [name_in(vllm, file) for file in report.files if file.changed] == ["model_executor/models/dots_ocr.py"]
    assert not [line for file in report.files for line in file.findings if line.code in MENDED]


def name_in(vllm: Path, file: FileReport) -> str:
    return Path(file.path).resolve().relative_to(vllm.resolve()).as_posix()
