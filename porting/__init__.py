"""Proof that a ported vision-language model file is right, on the device that is attached."""
