"""Originals of vLLM 0.10.2 to 0.14, run unmodified inside a newer vLLM."""

from porting.shim.original import Original, UnknownRelease, load_original

__all__ = ["Original", "UnknownRelease", "load_original"]
