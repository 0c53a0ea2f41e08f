"""Orchard-VL, a vision-language model for vLLM that lives outside vLLM."""

ARCHITECTURE = "OrchardVLForConditionalGeneration"


def register() -> None:
    """Tell vLLM's model registry about Orchard-VL. vLLM calls this once in each process; a second call does nothing."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        # A string, so that nothing of torch.cuda is touched before vLLM has forked its workers.
        ModelRegistry.register_model(ARCHITECTURE, f"orchard_vl.model:{ARCHITECTURE}")
