"""The papers' own figures, tables and statements, measured: what `neurecover reproduce` runs.

What the library does beyond a paper is measured in `benchmarks/`, beside `src/`.
"""

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
