"""Boundaries of single units above the known layers: traced, sampled and checked."""
