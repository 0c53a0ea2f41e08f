"""Attention of diffusion models that share a sequence among devices, as vllm-omni has it, proved on the device at hand.

The attention of a vllm_omni package is run on several ranks and on one, for the same inputs, under strict collectives.
`python -m porting.check_diffusion` is the command.
"""

from porting.diffusion.cases import CASES, DTYPES, WAYS, Case, Way
from porting.diffusion.package import Package, package_of

__all__ = ["CASES", "DTYPES", "WAYS", "Case", "Package", "Way", "package_of"]
