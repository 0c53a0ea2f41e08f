"""Tiny vision towers: for each family a configuration of a few parameters, and the pictures that its forward takes."""
