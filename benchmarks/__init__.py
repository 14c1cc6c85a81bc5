"""Everything that measures the library and is not a paper's own figure: what `neurecover bench` runs in a checkout.

Accuracy stands here side by side; `hinges/` has segmented regression, `hostile/` the problems of `torture`, `peers/`
other tools on the same data, `resources/` time and memory, `papers/` the published methods beyond what their papers
state. `against.py` is a program of its own: an older checkout against this one.
"""

from neurecover.experiment import Experiment, by_name

MODULES = (
    "finisher",
    "choices",
    "coverage",
    "hinges.lines",
    "hinges.choices",
    "hinges.planes",
    "hinges.samples",
    "activations",
    "large",
    "layers",
    "tables",
    "extract",
    "boxes",
    "published",
    "single_precision",
    "rare_units",
    "trained",
    "torture",
    "peers.shallow",
    "peers.deep",
    "resources.passes",
    "resources.lateness",
    "resources.scale",
    "resources.workers",
    "resources.resumes",
    "papers.atv21",
    "papers.gklw19",
    "papers.gp18",
    "papers.no_unions",
    "papers.steep",
    "papers.orders",
    "papers.spurious",
    "papers.rates",
    "papers.outputs",
    "papers.thresholds",
    "papers.lowest",
)


def benchmarks() -> dict[str, Experiment]:
    """Return every benchmark, by name."""
    return by_name(__name__, MODULES)
