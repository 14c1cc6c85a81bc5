"""One of every statistic, small enough for every test of statistics/."""

from collections.abc import Callable

import numpy as np

from neurecover.models import DeepNetwork, Network, as_student
from neurecover.statistics import (
    HermiteSums,
    InfluenceSums,
    InformationSums,
    Moments,
    NestedScores,
    OutputDigits,
    PreactivationRange,
    ProbeScores,
    ReadoutSums,
    Residuals,
    ScoreSums,
    ShapeCross,
    ShapeScores,
    Statistic,
    TurnedSides,
    UnitsOn,
)
from neurecover.statistics.checks.normality import RadialMoments
from neurecover.statistics.checks.symmetry import OddProjections
from neurecover.statistics.fits.hidden_gradient import HiddenGradient
from neurecover.statistics.moments.detector import PureNeuronSums
from neurecover.statistics.moments.opposite_signs import DistinguishingSums
from neurecover.statistics.moments.residual import ResidualMoments
from neurecover.statistics.moments.truncated import TruncatedSums

D, P, K = 3, 2, 4
_rng = np.random.default_rng(0)
ORIGIN = _rng.standard_normal(D + P)
BASIS = np.linalg.qr(_rng.standard_normal((D, 2)))[0]
NETWORK = Network(
    _rng.standard_normal((K, D)),
    _rng.standard_normal(K),
    _rng.standard_normal((P, K)),
    _rng.standard_normal(P),
    C=_rng.standard_normal((P, D)),
)
STUDENT = as_student(NETWORK, bias=True)
DIRECTION = _rng.standard_normal((K, D + 1))
DEEP = DeepNetwork([(DIRECTION[:, :D], DIRECTION[:, D]), (np.ones((2, K)), None), (np.ones((P, 2)), None)])

FACTORIES: dict[str, Callable[[], Statistic]] = {
    **{f"moments-{order}": lambda order=order: Moments(D, P, order, ORIGIN) for order in (1, 2, 3, 4)},
    **{f"hermite-{q}": lambda q=q: HermiteSums(D, P, degree=3, regress=q) for q in (-1, 0, 1, 3)},
    "hermite-projected": lambda: HermiteSums(D, P, 2, projection=BASIS, mean=ORIGIN[:D]),
    "residuals": lambda: Residuals(NETWORK, P, origin=ORIGIN[D:]),
    "readout": lambda: ReadoutSums(STUDENT),
    "one-layer": lambda: InformationSums.of(NETWORK),
    "one-layer-probed": lambda: InformationSums.of(NETWORK, True, DIRECTION[:2]),
    "range": lambda: PreactivationRange(DEEP),
    "hidden-gradient": lambda: HiddenGradient(STUDENT),
    "distinguishing": lambda: DistinguishingSums(DIRECTION[:, :D]),
    "odd-projections": lambda: OddProjections(DIRECTION[:, :D]),
    "pure-neuron": lambda: PureNeuronSums(BASIS[:P, :P], BASIS.T, (0.5, 0.5)),
    "normality": lambda: RadialMoments(D),
    "residual-moments": lambda: ResidualMoments(NETWORK, D, P),
    "truncated": lambda: TruncatedSums(lambda X: np.hstack([X, X**2]), 2 * D, P, 1.5),
    "two-layers": lambda: InformationSums.of(DEEP, True, DIRECTION[:2]),
    "units-on": lambda: UnitsOn(DEEP),
    "output-digits": lambda: OutputDigits(P),
    "probe-scores": lambda: ProbeScores(DEEP, np.arange(5), DIRECTION[:2], 1e-3 * np.ones((5, 2 * P))),
    "nested-scores": lambda: NestedScores(DEEP, np.arange(5), np.square, np.eye(P * D, 2), 1e-3 * np.ones((5, 2))),
    "scores": lambda: ScoreSums(Network(DIRECTION[:, :D], None, np.ones((P, K))), bias=False),
    "shape-cross": lambda: ShapeCross(DEEP, np.arange(5), np.square, D),
    "shape-scores": lambda: ShapeScores(DEEP, np.arange(5), np.square, np.ones((5, P * D + DEEP.n_parameters - 5))),
    "influence": lambda: InfluenceSums(DEEP, np.arange(5), np.eye(2, 5), 1e-3 * np.eye(5)),
    "turned-sides": lambda: TurnedSides(
        Network(DIRECTION[:, :D], None, np.ones((P, K))), np.arange(26), np.eye(2, 26), 0.1 * np.eye(26)
    ),
}
