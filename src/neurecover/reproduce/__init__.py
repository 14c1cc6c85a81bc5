"""Measure what the papers state: their figures, tables and theorems."""

from neurecover.experiment import Experiment, by_name

MODULES = (
    "gklw19",
    "gklw19_claims",
    "atv21",
    "atv21_crowded",
    "bjw18",
    "bjw18_noise",
    "gp18",
    "gp18_structure",
    "printed_forms",
    "gp18_layers",
)


def reproductions() -> dict[str, Experiment]:
    """Return every experiment of a paper, by name."""
    return by_name(__name__, MODULES)
