"""Does the vision tower build, take its weights under the names of the original, and divide its heads?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from porting import host
from porting.attention_calls import attention_ops
from porting.job import Job
from porting.pairs import Pair, each_tower
from porting.result import Result, Status
from porting.towers.find import make

RANKS = 2


def run(job: Job) -> list[Result]:
    """One result for each tower of the file."""
    return each_tower(job, lambda pair: [_result(job, pair)])


def _result(job: Job, pair: Pair) -> Result:
    dtype = getattr(torch, job.dtype)
    tower = make(pair.ported, pair.ported.shape, dtype, job.device)
    parameters = _shapes(tower)
    problems = [*_refused_weights(tower)]
    notes = list(pair.notes)
    if pair.original:
        try:
            named = _shapes(make(pair.original, pair.ported.shape, dtype, job.device))
            gone = [change for change in pair.changes if any(change.drops(n) for n in named.keys() - parameters.keys())]
            kept = {n: shape for n, shape in named.items() if not any(change.drops(n) for change in gone)}
            notes += [change.said() for change in gone]
            problems += _other_names(parameters, kept)
        except Exception as error:
            notes.append(f"parameters not compared: the original cannot be built here, {type(error).__name__}: {error}")
    else:
        notes.append(f"parameters not compared: {pair.alone}")
    with host.pretended_ranks(RANKS):
        divided = make(pair.ported, pair.ported.shape, dtype, job.device)
    divisions, undivided = _divided_heads(tower, divided)
    problems += undivided
    ops = attention_ops(tower)
    numbers = {"parameters": len(parameters), "attention ops": len(ops)}
    if problems:
        return job.result(Status.FAILED, f"{pair.name}: {'; '.join(problems)}", numbers=numbers, notes=tuple(notes))
    compared = ", named as in the original" if pair.original else ""
    heads = f"heads divided by {RANKS} in {divisions} of {len(ops)} ops" if ops else "no MMEncoderAttention in it"
    summary = f"{pair.name}: {len(parameters)} parameters{compared}; {heads}"
    return job.result(Status.PASSED, summary, numbers=numbers, notes=tuple(notes))


def _shapes(tower: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in tower.named_parameters()}


def _other_names(ported: Mapping[str, tuple[int, ...]], original: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What a checkpoint of the original would not find in the port, or find in another shape."""
    lost, new = (sorted(a.keys() - b.keys()) for a, b in ((original, ported), (ported, original)))
    other = [name for name in ported.keys() & original.keys() if ported[name] != original[name]]
    return [
        *([f"parameters of the original are missing: {_some(lost)}"] if lost else []),
        *([f"parameters that the original does not have: {_some(new)}"] if new else []),
        *(f"{name} is {ported[name]}, in the original {original[name]}" for name in sorted(other)[:3]),
    ]


def _refused_weights(tower: nn.Module) -> list[str]:
    """Parameters that do not take a whole tensor of their own shape, as a checkpoint of one process has it."""
    problems = []
    for name, parameter in tower.named_parameters():
        load = getattr(parameter, "weight_loader", None)
        if load is None:
            continue
        weights = torch.randn_like(parameter)
        before = parameter.data.clone()
        try:
            load(parameter, weights)
            if not torch.equal(parameter.data, weights):
                problems.append(f"{name} does not hold what was loaded into it")
        except Exception as error:
            problems.append(f"{name} takes no weights: {type(error).__name__}: {error}")
        parameter.data.copy_(before)
    return problems


def _divided_heads(whole: nn.Module, part: nn.Module) -> tuple[int, list[str]]:
    """How many attention ops have fewer heads on one of several ranks, and whose heads do not go with the projections.

    A tower may keep its attention whole on every rank: then the parameters beside it are whole too.
    """
    problems = []
    divided = 0
    ops = attention_ops(part)
    shapes, local = _shapes(whole), _shapes(part)
    for name, op in attention_ops(whole).items():
        beside = name.rpartition(".")[0]
        sharded = any(shapes[n] != local[n] for n in shapes if n.startswith(f"{beside}.") or not beside)
        heads = op.num_heads // (RANKS if sharded else 1)
        divided += sharded
        if ops[name].num_heads != heads:
            problems.append(f"{name} has {ops[name].num_heads} heads on one of {RANKS} ranks, not {heads}")
    return divided, problems


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
