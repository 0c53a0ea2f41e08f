"""What vllm-omni's attention and process groups are in each of its releases: which objects can be called, what their
methods give back, and which arguments they hand to a collective as they get them."""

from codemods.vllm_omni_api.api import NOTHING, Found, Kind, OmniApi, OmniFunction, Role

__all__ = ["NOTHING", "Found", "Kind", "OmniApi", "OmniFunction", "Role"]
