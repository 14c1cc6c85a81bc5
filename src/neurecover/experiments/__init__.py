"""Benchmarks and the papers' figures, by name."""

from neurecover.experiments.experiment import Experiment

__all__ = ["Experiment", "benchmarks", "reproductions"]


def benchmarks() -> dict[str, Experiment]:
    """What `neurecover bench` runs."""
    return {}


def reproductions() -> dict[str, Experiment]:
    """What `neurecover reproduce` runs."""
    return {}
