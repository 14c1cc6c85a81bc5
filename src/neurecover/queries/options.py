"""The options of an extraction: one frozen value, made by `neurecover.extract` and carried by the oracle."""

from __future__ import annotations

from dataclasses import dataclass, field

from neurecover.queries.box.options import BoxOptions
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.lines.options import LineOptions
from neurecover.queries.saturating.options import SaturatingOptions
from neurecover.queries.shallow.options import ShallowOptions
from neurecover.queries.smooth.options import SmoothOptions


@dataclass(frozen=True)
class ClassifierOptions:
    """How a classifier is recognised, and how far out its probabilities still show logits."""

    scales: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 100.0)  # of the queries that show the rounding of probabilities
    each: int = 24  # of them at each scale
    segments: int = 8  # short ones that tell whether an answer in [0, 1] or its logit is made of straight pieces
    lengths: tuple[float, ...] = (1e-3, 1e-2, 1e-1)  # of segments: longer ones for answers of fewer digits
    doubt: float = 1e-3  # probabilities on them from 0 and 1
    straighter: float = 30.0  # bend of p over that of its logit, from which the logit is what a network computes
    fine: float = 1e-5  # grid of probabilities up to which two of a hundred random ones hardly ever agree
    extreme: float = 1e-4  # probabilities nearer to 0 or 1 may be saturated, and so agree
    tied: int = 5  # of the random queries with the answer of another that show plateaus; a network has none
    corners: int = 48  # towards which the range is measured
    halvings: int = 10  # of the distance to each
    farthest: float = 1e4  # distance at which that begins
    inside: float = 0.9  # of the smallest distance: other corners are a little nearer
    nearer: int = 4  # times that the range is halved if a query met probabilities that show no logits


@dataclass(frozen=True)
class DiagnosisOptions:
    """How an oracle that is no network is told from one, within a few hundred queries."""

    pairs: int = 4  # of neighbours: most of those of a piecewise constant model have the same answer
    near: float = 1e-5  # distance of two neighbours: a thousand boosted trees have a step in 1 % of such pairs
    same: float = 0.7  # of the pairs that make a further look worth its queries
    segments: int = 16  # along which jumps are looked for
    points: int = 16  # on each
    steps: int = 12  # halvings of an interval in which the answers change: a slope leaves 2^-12 of the change
    jump: float = 0.02  # of the change that is left if it has a jump: eighty times what a slope leaves
    jumps: float = 0.6  # of the segments that show one
    repeated: int = 64  # queries made twice: a model of which 4 % of the answers change is missed in 0.5 %
    moves: int = 6  # points at which every input is moved by itself
    most_inputs: int = 150  # up to which that is done
    order: float = 0.85  # rank correlation of an input's place and its effect, as of a window that is read in order
    far: tuple[float, float] = (1e4, 1e6)  # distances at which bounded answers are at their limits
    limits: float = 0.75  # of the answers there that are at one of two: the others have all units off
    whole: float = 0.9  # of the jumps that lie half-way between whole numbers if inputs are rounded
    decay: float = 5.0  # effect of the last inputs over that of the first ones


@dataclass(frozen=True)
class QueryOptions:
    """The options of every folder, and those of the certificate's held-out queries."""

    box: BoxOptions = field(default_factory=BoxOptions)
    lines: LineOptions = field(default_factory=LineOptions)
    shallow: ShallowOptions = field(default_factory=ShallowOptions)
    deep: DeepOptions = field(default_factory=DeepOptions)
    saturating: SaturatingOptions = field(default_factory=SaturatingOptions)
    smooth: SmoothOptions = field(default_factory=SmoothOptions)
    classifier: ClassifierOptions = field(default_factory=ClassifierOptions)
    looks: DiagnosisOptions = field(default_factory=DiagnosisOptions)
    weighted_parameters: int = 3_000  # of a weighted fit, whose cost is n P²: beyond, it is left out
    held_out: int = 8  # queries of the certificate at each distance
    distances: tuple[float, ...] = (0.3, 1.0, 10.0)  # of them, in units of √d
    noise_queries: int = 400  # of the certificate's tests of noise, if answers are coarse
    diagnosis: int = 64  # queries that say what an oracle looks like whose weights were not found
    late: float = 8.0  # seconds that the certificate may take after the end of the time budget, at the most

    @property
    def certificate_queries(self) -> int:
        """The largest number of queries that a certificate makes."""
        return self.held_out * len(self.distances) + self.noise_queries
