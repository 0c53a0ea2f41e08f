"""Two towers as they were written for vLLM 0.12, and the ways in which their ports can be wrong."""
