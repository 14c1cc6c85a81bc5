"""Plan the number of samples for a wanted error.

With noise of standard deviation σ no unbiased estimate of the weights has a covariance below σ² (n F)⁻¹ [Cramér–Rao],
where F is the information of one sample, and the last fit reaches it (`neurecover bench noise`). A unit row w of the
normal form then has E‖δw‖² = (σ²/n) tr(P F⁻¹ P), P = I − w wᵀ, so that an error ε of the worst unit needs

    n = σ²/ε² · max over units of tr(P F⁻¹ P).

Without noise recovery is either exact or fails. Its needs were measured: a number of equations per parameter
(`neurecover bench finisher`, docs/results/finisher.csv), and for every unit more samples on either side of its kink
than it has weights. The number of samples on a side is binomial.

An algorithm's own estimate, before any fit, needs more. The papers give polynomials without constants, so its error is
measured on samples simulated from the network, with four times as many each time until the wanted error is reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from neurecover.algorithms import get_method
from neurecover.algorithms.atv21.printed import least_ell
from neurecover.certificate import CertificateOptions
from neurecover.certificate.information.matrix import Information
from neurecover.matching import compare
from neurecover.models import Network
from neurecover.pipeline import estimate
from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate import distribution, sample, teacher
from neurecover.simulate.inputs import Distribution
from neurecover.statistics import InformationSums
from neurecover.wording import in_columns

LIMITS = CertificateOptions()


@dataclass(frozen=True)
class PlanOptions:
    """Equations per parameter at which recovery was exact (rows of docs/results/finisher.csv), and numbers of draws."""

    told: float = 5.5  # width known: 5.1 to 5.4 for d = k = 10 to 50, exact in at least 98 of 100
    crowded: float = 7.5  # 7.2 for twice as many units as inputs
    found: float = 11.0  # width to be found: 10.8, exact in 95 of 100
    draws: int = 9  # networks of typical sizes, whose median is the answer
    rows: int = 20_000  # inputs for the information matrix, or a hundred per parameter
    pilots: tuple[int, ...] = tuple(4**i for i in range(3, 11))  # samples at which a method is tried, to a million
    pilot_draws: int = 3  # runs whose median is the error at a number of samples


OPTIONS = PlanOptions()


@dataclass(frozen=True)
class Plan:
    """The number of samples that a recovery needs, and why.

    Attributes
    ----------
    n_samples : int
        The number of samples.
    because : str
        The need that decides.
    needs : dict of str to int
        The number of samples for each need.
    error : float
        The expected root mean square of ‖ŵ − w‖ for the worst unit with this many samples; 0.0 without noise.
    noise, n_parameters : float, int
        The noise and the number of parameters that were planned for.
    curve : tuple of (int, float)
        For a method, the median error of its estimate at every number of samples that was tried.
    bounds : dict of str to float
        For a method, the sample sizes of its paper with every constant set to one; for information only.

    Examples
    --------
    >>> import neurecover as nr
    >>> nr.samples_needed(n_inputs=5, n_hidden=3, random_state=0).n_samples > 3 * 7
    True
    """

    n_samples: int
    error: float
    noise: float
    n_parameters: int
    needs: dict[str, int]
    curve: tuple[tuple[int, float], ...] = ()
    bounds: dict[str, float] = field(default_factory=dict)

    @property
    def because(self) -> str:
        return max(self.needs, key=self.needs.__getitem__)

    def rows(self) -> list[tuple[str, str]]:
        """Return the summary as pairs of a label and a text."""
        expected = "exact" if self.noise == 0.0 else f"{self.error:.2g} in the weights of the worst unit"
        rows = [
            ("samples", f"{self.n_samples:,} for {self.n_parameters:,} parameters"),
            ("error", f"{expected}, noise {self.noise:g}"),
        ]
        needs = sorted(self.needs.items(), key=lambda need: -need[1])
        rows += [("measured" if i == 0 else "", f"{error:.2g} with {n:,}") for i, (n, error) in enumerate(self.curve)]
        rows += [("bound", f"{n:.2g}: {what}") for what, n in self.bounds.items()]
        return rows + [("because" if i == 0 else "", f"{n:,}: {what}") for i, (what, n) in enumerate(needs)]

    def summary(self) -> str:
        """Return the plan as text.

        Returns
        -------
        str
            A few lines.
        """
        return in_columns(self.rows())


def samples_needed(
    network: Network | None = None,
    *,
    n_inputs: int | None = None,
    n_hidden: int | None = None,
    n_outputs: int = 1,
    bias: bool = True,
    noise: float = 0.0,
    error: float | None = None,
    inputs: str | Distribution = "gaussian",
    told: bool = True,
    method: str | None = None,
    form: str = "best",
    random_state: RandomStateLike = None,
) -> Plan:
    """Return how many samples recovery needs, for a given network or for typical networks of a size.

    Parameters
    ----------
    network : Network or None, default=None
        The network, or a similar one; None for the median over random networks of the sizes below.
    n_inputs, n_hidden, n_outputs : int
        The sizes, if no network is given.
    bias : bool, default=True
        Whether b and c are free.
    noise : float, default=0.0
        The standard deviation of the noise on every output.
    error : float or None, default=None
        The wanted root mean square of ‖ŵ − w‖ for the worst unit row; None for the error that a `statistical` verdict
        needs.
    inputs : str or callable, default="gaussian"
        The distribution of the inputs, by name or as a callable (rng, n, d) → (n, d).
    told : bool, default=True
        Whether the number of units will be given to `recover`.
    method : str or None, default=None
        Plan for this algorithm's own estimate, as `estimate` returns it; None for `recover`. Its error is measured on
        simulated samples, which takes a few runs of the algorithm.
    form : str, default="best"
        The form of the method.
    random_state : int, Generator, RandomState or None, default=None
        The seed of the networks and inputs for the information matrix.

    Returns
    -------
    Plan
        The number of samples, and the need that decides.

    Examples
    --------
    >>> import neurecover as nr
    >>> noisy = nr.samples_needed(n_inputs=5, n_hidden=3, noise=0.1, error=0.05, random_state=0)
    >>> noisy.n_samples > nr.samples_needed(n_inputs=5, n_hidden=3, random_state=0).n_samples
    True
    """
    if not (np.isfinite(noise) and noise >= 0.0):
        raise ValueError(f"noise needs to be a standard deviation, 0 or more. Got {noise!r} instead.")
    if error is not None and not (np.isfinite(error) and error > 0.0):
        raise ValueError(f"error needs to be a number above 0. Got {error!r} instead.")
    rng = as_generator(random_state, "samples_needed")
    if method is not None:
        if network is None and n_inputs is not None and n_hidden is not None:
            network = teacher(n_inputs, n_hidden, n_outputs, bias=0.7 * bias, random_state=rng)
        if network is None:
            raise ValueError("samples_needed needs a network, or n_inputs and n_hidden. Got neither.")
        return _plan_estimate(network, method, form, bias, noise, error, distribution(inputs), rng)
    if network is not None:
        return _plan(network, bias, noise, error, distribution(inputs), told, rng)
    if n_inputs is None or n_hidden is None:
        raise ValueError("samples_needed needs a network, or n_inputs and n_hidden. Got neither.")
    size = 0.7 * bias  # in standard deviations of the inputs, as in the tables
    typical = [teacher(n_inputs, n_hidden, n_outputs, bias=size, random_state=rng) for _ in range(OPTIONS.draws)]
    plans = [_plan(one, bias, noise, error, distribution(inputs), told, rng) for one in typical]
    return sorted(plans, key=lambda plan: plan.n_samples)[OPTIONS.draws // 2]


def unit_variances(network: Network, X: np.ndarray, bias: bool = True) -> np.ndarray:
    """Return tr(P F⁻¹ P) of every unit, (k,): the smallest possible E‖δw‖² from X with noise of variance 1."""
    normal = network.normal_form()
    sums = InformationSums.of(normal, bias)
    sums.update(X, normal(X))
    inverse = Information.of(sums).inverse
    d = normal.n_inputs
    blocks = [inverse[j * d : (j + 1) * d, j * d : (j + 1) * d] for j in range(normal.n_hidden)]
    across = [np.eye(d) - np.outer(w, w) for w in normal.W]
    return np.array([np.trace(P @ block @ P) for P, block in zip(across, blocks)])


def _plan(
    network: Network,
    bias: bool,
    noise: float,
    error: float | None,
    inputs: Distribution,
    told: bool,
    rng: np.random.Generator,
) -> Plan:
    (k, d), p = network.W.shape, network.n_outputs
    free = network.n_parameters - k - (0 if bias else k + p)
    X = np.asarray(inputs(rng, max(OPTIONS.rows, 100 * free), d), dtype=float)
    load = _per_parameter(network, told)
    needs = {f"{load:g} equations per parameter": _ceil(load * free / p)}
    needs[f"more than {d + bias} samples on either side of every kink"] = _at_kinks(network, X, d + bias)
    if noise > 0.0:
        worst = float(unit_variances(network, X, bias).max()) * len(X)
        wanted = LIMITS.wide if error is None else error
        needs[f"an error of {wanted:g} by the Cramér–Rao bound"] = _ceil(noise**2 * worst / wanted**2)
        needs[f"{LIMITS.few} noisy equations per parameter"] = _ceil(LIMITS.few * free / p)
    n = max(needs.values())
    expected = noise * np.sqrt(worst / n) if noise > 0.0 else 0.0
    return Plan(n, float(expected), float(noise), free, needs)


def _plan_estimate(
    network: Network,
    method: str,
    form: str,
    bias: bool,
    noise: float,
    error: float | None,
    inputs: Distribution,
    rng: np.random.Generator,
) -> Plan:
    """Measure the error of an estimate at n = 4⁴, 4⁵, … until the wanted error is reached, and interpolate."""
    if get_method(method, besides="").finds == "composite":
        raise ValueError(
            f"{method} finds the first layer below any upper part, and samples are simulated here from networks with "
            "one hidden layer. Plan for another method, or try it on such a network."
        )
    k, wanted = network.n_hidden, LIMITS.wide if error is None else error
    free = network.n_parameters - k - (0 if bias else k + network.n_outputs)
    curve: list[tuple[int, float]] = []
    for n in OPTIONS.pilots:
        if n * network.n_outputs <= free:
            continue
        draws = range(OPTIONS.pilot_draws)
        errors = [_estimate_error(network, method, form, bias, noise, inputs, n, rng) for _ in draws]
        curve.append((n, float(np.median(errors))))
        if curve[-1][1] <= wanted:
            break
    n, what = _reach(curve, wanted, f"{method} ({form})")
    return Plan(n, wanted, float(noise), free, {what: n}, tuple(curve), _bounds(network, method, wanted))


def _estimate_error(
    network: Network,
    method: str,
    form: str,
    bias: bool,
    noise: float,
    inputs: Distribution,
    n: int,
    rng: np.random.Generator,
) -> float:
    """Return ‖ŵ − w‖ of the worst unit in one run on simulated samples, ∞ if a unit is not found."""
    X, Y = sample(network, n, inputs=inputs, noise=noise, random_state=rng)
    act = network.activation
    found = estimate(X, Y, network.n_hidden, method, form, act, bias=bias, random_state=rng)
    if found.network is None and found.seconds == 0.0:  # refused before it was run
        raise ValueError(found.notes[0])
    if not isinstance(found.network, Network):
        return np.inf
    c = compare(found.network, network)
    return np.inf if c.unmatched[1] else float(c.weight_error)


def _reach(curve: list[tuple[int, float]], wanted: float, name: str) -> tuple[int, str]:
    """Return the n at which a measured curve reaches the wanted error, and a sentence on how it was determined.

    Between two sizes log n is interpolated in log error; beyond the last size the error is assumed to fall as 1/√n.
    """
    n, last = curve[-1]
    if last <= wanted:
        before, above = curve[-2] if len(curve) > 1 else (n, last)
        if np.isfinite(above) and above > wanted >= last > 0.0:
            share = np.log(above / wanted) / np.log(above / last)
            n = _ceil(before * (n / before) ** share)
        return n, f"{name} reaches an error of {wanted:g}, measured"
    if not np.isfinite(last):
        raise ValueError(
            f"{name} finds no such network from {n:,} simulated samples: its assumptions do not hold, or it takes "
            "more. "
            "Plan for another method."
        )
    return _ceil(n * (last / wanted) ** 2), f"{name} would reach an error of {wanted:g} if it goes on falling as 1/√n"


def _bounds(network: Network, method: str, error: float) -> dict[str, float]:
    """Return the paper's sample sizes with every constant and logarithm set to one; empty if it states none."""
    k, d = network.W.shape
    if method == "hermite":
        ell, B = least_ell(k, d), max(float(np.abs(network.A).max()), float(np.abs(network.b).max()), 1.0)
        what = f"d^(2ℓ + 2) m² B⁴/η² of [ATV21, Lemma 5.2], ℓ = {ell}, B = {B:.2g}, η = {error:g}"
        return {what: d ** (2 * ell + 2) * k**2 * B**4 / error**2}
    if method == "one_sparse":
        kappa = float(np.linalg.cond(network.W))
        return {f"d κ^k log k of [BJW18, Lemma 21], κ = {kappa:.2g}": d * kappa**k * np.log(max(k, 2))}
    return {}


def _per_parameter(network: Network, told: bool) -> float:
    if not told:
        return OPTIONS.found
    return OPTIONS.crowded if network.n_hidden > network.n_inputs else OPTIONS.told


def _at_kinks(network: Network, X: np.ndarray, weights: int) -> int:
    """Return the n at which n q ≥ weights + 2 + 3 √(n q), q the share of inputs on the rarer side of any kink."""
    on = np.mean(X @ network.W.T + network.b > 0.0, axis=0)
    rarer = np.minimum(on, 1.0 - on)
    unit = int(np.argmin(rarer))
    if rarer[unit] == 0.0:
        raise ValueError(
            f"Unit {unit} does not switch on any of {len(X)} such inputs, so that no number of samples shows it. "
            "Give inputs that reach its kink."
        )
    root = 1.5 + np.sqrt(2.25 + weights + 2.0)
    return _ceil(root**2 / float(rarer[unit]))


def _ceil(number: float) -> int:
    return int(np.ceil(number))
