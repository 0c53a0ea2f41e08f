"""The work of one rank: the package's own groups, splitting and attention layer, under strict collectives."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from porting.diffusion.cases import Case, Way
from porting.diffusion.inputs import HEAD_DIM, Inputs, inputs_of, split
from porting.diffusion.package import Package, configured, submodule
from porting.reference import ContractViolation, strict_collectives


@dataclass(frozen=True)
class Part:
    """What a rank gives: its share of the picture, all of the text; `(batch, tokens, heads, head_dim)`, on the CPU."""

    picture: torch.Tensor
    text: torch.Tensor
    collectives: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The package declines a combination, in its own words; `by` is the part of it that did."""

    by: str
    reason: str
    silent: Part | None = None  # what its attention gives all the same, where it was its splitting that declined


def run_cases(
    package: Package, cases: Sequence[Case], way: Way, dtype: torch.dtype, device: str, rank: int, rendezvous: Path
) -> dict[str, Part | Refusal]:
    """What this rank gives for each case. Raises whatever a case does that is no refusal."""
    torch.set_grad_enabled(False)
    with groups(way, device, rank, rendezvous):
        return {case.name: run_case(package, case, way, dtype, device) for case in cases}


def run_case(package: Package, case: Case, way: Way, dtype: torch.dtype, device: str) -> Part | Refusal:
    data = submodule("diffusion.data")
    degrees: dict[str, Any] = {"ulysses_degree": way.ulysses, "ring_degree": way.ring}
    if case.uneven(way):
        degrees["ulysses_mode"] = "advanced_uaa"
    try:
        parallel = data.DiffusionParallelConfig(**degrees)
    except (TypeError, ValueError) as error:  # a dataclass of pydantic's, or a plain one
        return Refusal("configuration", said(error))
    config = data.OmniDiffusionConfig(model="", dtype=dtype, parallel_config=parallel)
    takes_mask = way.ranks > 1 and (case.masked or case.pads(way))
    declined = _declines_masks(config, case, way) if takes_mask else ""
    if declined and case.pads(way):
        return Refusal("splitting", declined)
    with configured(config):
        inputs = inputs_of(case, dtype).to(device)
        try:
            part = _attend(case, way, inputs)
        except Exception as error:
            if declined:
                return Refusal(MASKS, declined)
            if not _is_refusal(error, package):
                raise
            return Refusal("attention", said(error))
    return Refusal(MASKS, declined, part) if declined else part


MASKS = "splitting, as whatever takes a mask"


def _attend(case: Case, way: Way, inputs: Inputs) -> Part:
    layer = submodule("diffusion.attention.layer").Attention(
        num_heads=case.heads, head_size=HEAD_DIM, causal=False, softmax_scale=HEAD_DIM**-0.5
    )
    metadata_class = submodule("diffusion.attention.backends.abstract").AttentionMetadata
    if way.ranks == 1:  # models join text and picture themselves where nothing is shared
        query, key, value, mask = inputs.joined(case.place)
        output = layer(query, key, value, metadata_class(attn_mask=mask if case.masked else None))
        return Part(*(part.cpu() for part in split(output, case.text, case.place)))
    query, key, value = (_share(tensor, case, way) for tensor in (inputs.query, inputs.key, inputs.value))
    metadata = metadata_class(**_metadata(case, way, inputs, query))
    with strict_collectives() as seen:
        output = layer(query, key, value, metadata)
    picture, text = split(output, case.text, case.place)
    return Part(picture.cpu(), text.cpu(), seen.counts())


def _metadata(case: Case, way: Way, inputs: Inputs, share: torch.Tensor) -> dict[str, Any]:
    """As a model fills it: masks only where there is something to leave out."""
    given: dict[str, Any] = {"joint_strategy": case.place}
    if case.text:
        given |= {
            "joint_query": inputs.text_query,
            "joint_key": inputs.text_key,
            "joint_value": inputs.text_value,
        }
    if case.masked == "text":
        given["joint_attn_mask"] = inputs.text_mask
    padding = share.shape[1] * way.ranks - case.tokens if case.padded else 0
    if case.masked == "picture" or padding:
        given["attn_mask"] = torch.nn.functional.pad(inputs.picture_mask, (0, padding), value=False)
    return given


def _share(tensor: torch.Tensor, case: Case, way: Way) -> torch.Tensor:
    """This rank's tokens, by the package's own splitting."""
    plan = submodule("diffusion.distributed.sp_plan")
    hook = submodule("diffusion.hooks.sequence_parallel").SequenceParallelSplitHook(
        {}, plan.SequenceParallelConfig(ulysses_degree=way.ulysses, ring_degree=way.ring)
    )
    return hook._prepare_sp_input(tensor, plan.SequenceParallelInput(split_dim=1, auto_pad=case.padded))


def _declines_masks(config: object, case: Case, way: Way) -> str:
    """Why the package's splitting will not pad, which takes a mask: its own words, empty where it does.

    What its attention does with a mask that it was given all the same is another matter: it may leave it out silently.
    """
    odd = case.tokens if case.tokens % way.ranks else case.tokens + 1
    with configured(config):
        try:
            _share(torch.zeros(1, odd, 1, 1), Case("", tokens=odd), way)
        except ValueError as error:
            return said(error)
    return ""


def _is_refusal(error: Exception, package: Package) -> bool:
    """Whether the package's own code has a line that says no, rather than something having gone wrong in it."""
    if not isinstance(error, (ValueError, NotImplementedError)) or isinstance(error, ContractViolation):
        return False
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    ours = Path(innermost.filename).resolve().is_relative_to(package.root)
    return ours and (innermost.line or "").startswith("raise ")


def said(error: BaseException) -> str:
    """Kind and message of an exception, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def groups(way: Way, device: str, rank: int, rendezvous: Path) -> Iterator[None]:
    """The package's own groups and vLLM's, over gloo on a CPU and over the device's own collectives elsewhere."""
    from vllm.config import VllmConfig, set_current_vllm_config

    state = submodule("diffusion.distributed.parallel_state")
    backend = "gloo" if device == "cpu" else None
    with set_current_vllm_config(VllmConfig()):
        state.init_distributed_environment(
            world_size=way.ranks,
            rank=rank,
            distributed_init_method=f"file://{rendezvous}",
            local_rank=rank,
            backend=backend,
        )
        state.initialize_model_parallel(
            sequence_parallel_size=way.ranks, ulysses_degree=way.ulysses, ring_degree=way.ring, backend=backend
        )
        yield
        torch.distributed.barrier()  # another may still be reading what this one sent last
