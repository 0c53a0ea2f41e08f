"""The two faults of vllm-omni's pull request 597, put back into release 0.14.0 by small edits."""

from __future__ import annotations

from pathlib import Path

from tests.rules.vision_model import edited

LAYER = Path("diffusion", "attention", "layer.py")
ULYSSES = Path("diffusion", "attention", "parallel", "ulysses.py")

SHARED = "        return self.attention.forward(query, key, value, attn_metadata)\n"
BRANCH = """\
        if current_omni_platform.is_npu():
            return self.attention(query, key, value, num_heads=query.shape[2], input_layout="BSND")[0]
"""
UNDEFINED = BRANCH.replace("self.attention(", "fused_attention(")
CONTEXT = "from vllm_omni.diffusion.forward_context import get_forward_context\n"
PLATFORM = "from vllm_omni.platforms import current_omni_platform\n"
CONTIGUOUS = "            output_joint = output_joint.contiguous()\n"


def broken(original: Path, branch: str = BRANCH) -> dict[Path, str]:
    """The texts of the two files with the faults in them."""
    layer, ulysses = ((original / path).read_text(encoding="utf-8") for path in (LAYER, ULYSSES))
    return {
        LAYER: edited(layer, SHARED, branch + SHARED, CONTEXT, CONTEXT + PLATFORM),
        ULYSSES: edited(ulysses, CONTIGUOUS, ""),
    }
