"""Port vLLM vision-language model files between vLLM versions: source text in, source text out."""

__version__ = "0.1.0"
