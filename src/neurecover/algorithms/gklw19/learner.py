"""Several outputs under any symmetric input distribution [GKLW19]: y = A act(W x), p ≥ k, d ≥ k, no biases.

Algorithms 2 to 4 in one flow: find k combinations of the outputs that hold everything (Alg. 4), the span of the z zᵀ as
the null space of a detector (step 5), the rows z of A⁻¹ by simultaneous diagonalisation (steps 7–9), and every unit's
weights from its pure output z·y by Algorithm 1, v = E[(z·y) x]ᵀ E[x xᵀ]⁻¹ / h. `Settings` chooses between the paper's
form and the one that is used here, which differs in four places, each measured in docs/methods.md:

    the linear part is regressed together with even features, the reduced outputs are balanced, the whole span is
    diagonalised, and of the two detectors (moments; pointwise) the one whose network leaves less of y is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from neurecover.activations import Activation
from neurecover.algorithms.base import Algorithm, Call
from neurecover.algorithms.gklw19.distinguishing import Distinguishing, distinguish
from neurecover.algorithms.gklw19.options import DEFAULTS, SymmetricOptions
from neurecover.algorithms.gklw19.pure_neuron import (
    LinearPart,
    Reduction,
    Spectrum,
    count_units,
    detector_sums,
    gains,
    linear_part,
    moment_spectrum,
    pointwise_spectrum,
    pure_directions,
    reduction,
    units_from_gap,
)
from neurecover.algorithms.gklw19.reflection import SymmetryTest, symmetry_test
from neurecover.certificate import Check
from neurecover.data import Mapped, Oracle, Source, Whitening, reduce, split
from neurecover.data.oracles.reflected import with_reflections
from neurecover.exceptions import UnsolvableError
from neurecover.models import Model, Network, Student, as_student
from neurecover.results import Estimate
from neurecover.search import Task
from neurecover.solve import Readout
from neurecover.statistics import Moments, ReadoutSums, Residuals
from neurecover.statistics.fits.hidden_gradient import HiddenGradient


@dataclass(frozen=True)
class Settings:
    """Which form of the algorithm.

    detector: "moments" [Alg. 2], "noisy" [Alg. 3], "pointwise", or "best": the better of the last two, by the
    residual of the network that comes out. diagonalise: see `pure_directions`. regress, balance: see `linear_part`
    and `reduction`. halve: the span from one half of the samples, signs and hidden weights from the other [Alg. 3].
    hidden: what follows, "algorithm 1" and nothing else, "readout" (A once more, by least squares at the W found) or
    "gradient" (W by gradient descent with A fixed, as in the experiments of the paper). whiten: inputs of unit second
    moment, which the paper does not ask for.
    """

    detector: str = "best"
    diagonalise: str = "joint"
    regress: bool = True
    balance: bool = True
    halve: bool = False
    hidden: str = "readout"
    whiten: bool = True


OURS = Settings()
PAPER = Settings("noisy", "pencil", regress=False, balance=False, halve=True, hidden="algorithm 1", whiten=False)
PAPER_IN_PRACTICE = Settings("noisy", "als", regress=False, balance=False, hidden="gradient", whiten=False)


@dataclass(frozen=True)
class Found:
    """The network, its mean squared residual, the detector that gave it and the spectrum of that detector.

    `distinguishing` has σ_min of the distinguishing matrix at the network's weights and `symmetry` the test of the
    inputs, where they were asked for.
    """

    network: Network
    mse: float
    detector: str
    spectrum: Spectrum
    linear: LinearPart
    distinguishing: Distinguishing | None = None
    symmetry: SymmetryTest | None = None

    @property
    def gap(self) -> float:
        """The ratio of the singular values next to the null space, above and below it."""
        return self.spectrum.gap(self.network.n_hidden)


def learn(
    source: Source,
    n_hidden: int | None,
    activation: Activation,
    rng: np.random.Generator,
    settings: Settings = OURS,
    options: SymmetricOptions = DEFAULTS,
) -> tuple[Found, ...]:
    """Return the network behind symmetric inputs, one answer per detector, best first. n_hidden=None finds k from the
    detector.

    An oracle is asked at x and −x together. UnsolvableError where the outputs do not carry k units.
    """
    gain = gains(activation)
    if gain is None:
        raise ValueError(f"The method needs act(z) = h z + g |z| with h, g ≠ 0, as relu has. Got {activation} instead.")
    if isinstance(source, Oracle):
        source = with_reflections(source)
    d, p = source.n_inputs, source.n_outputs
    whitening = Whitening.of(np.zeros(d), reduce(source, Moments(d, p)).xx) if settings.whiten else None
    source = source if whitening is None else Mapped(source, whitening)
    first, second = split(source, 0.5, int(rng.integers(2**31))) if settings.halve else (source, source)
    part = linear_part(first, settings.regress, options)
    k = n_hidden or _find_units(first, part, gain, options)
    reduced = reduction(part.L, k, settings.balance, options)
    again = part if second is first else linear_part(second, settings.regress, options)
    mean = reduce(second, Moments(source.n_inputs, p, order=1)).mean
    answers = []
    for name, spectrum in _spectra(first, reduced, gain, settings.detector).items():
        Z = pure_directions(spectrum.null_space(k), rng, settings.diagonalise)
        V, A = _units(Z, reduced, again.L, mean, gain)
        network = Network(V, None, A, activation=activation)
        network, mse = _finish(second, network, settings.hidden, options.gradient_steps)
        if whitening is not None:
            network = Network(network.W @ whitening.matrix.T, None, network.A, activation=activation)
        answers.append(Found(network, mse, name, spectrum, part))
    return tuple(sorted(answers, key=lambda found: found.mse))


def _spectra(source: Source, reduced: Reduction, gain: tuple[float, float], detector: str) -> dict[str, Spectrum]:
    wanted = ("noisy", "pointwise") if detector == "best" else (detector,)
    sums = detector_sums(source, reduced, gain, pointwise="pointwise" in wanted)
    make = {
        "moments": lambda: moment_spectrum(sums, centred=False),
        "noisy": lambda: moment_spectrum(sums, centred=True),
        "pointwise": lambda: pointwise_spectrum(sums),
    }
    if unknown := set(wanted) - set(make):
        raise ValueError(f"detector needs to be best or one of {', '.join(make)}. Got {unknown.pop()!r} instead.")
    return {name: make[name]() for name in wanted}


def _find_units(source: Source, part: LinearPart, gain: tuple[float, float], options: SymmetricOptions) -> int:
    most = count_units(part, options)
    if most == 0:
        raise UnsolvableError(
            "The outputs have no linear part that stands out of its standard errors, so no unit is seen."
        )
    if most == 1:
        return 1
    reduced = reduction(part.L, most, options=options)
    return units_from_gap(moment_spectrum(detector_sums(source, reduced, gain, pointwise=False)), most)


def _units(
    Z: np.ndarray, reduced: Reduction, L: np.ndarray, mean: np.ndarray, gain: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return V (k, d) and A (p, k): signs from E[z·A|W x|] > 0 (step 9), weights by Algorithm 1 (step 11)."""
    h, g = gain
    d = L.shape[1]
    pure = Z @ reduced.projection
    even = pure @ (mean[d:] - L @ mean[:d]) / g
    signs = np.where(even < 0.0, -1.0, 1.0)[:, None]
    return signs * (pure @ L) / h, reduced.lift @ np.linalg.pinv(signs * Z)


def _finish(source: Source, network: Network, hidden: str, steps: int) -> tuple[Network, float]:
    """Return the network after its last step, and its mean squared residual per output."""
    student = as_student(network, bias=False)
    if hidden == "readout":
        sums = reduce(source, ReadoutSums(student)).sums
        student = replace(student, theta=student.theta + Readout(sums["hh"]).solve(sums["hr"]))
    elif hidden == "gradient":
        student = _descend_hidden(source, student, steps)
    elif hidden != "algorithm 1":
        raise ValueError(f"hidden needs to be algorithm 1, readout or gradient. Got {hidden!r} instead.")
    result = Network(student.V[0], None, student.top.T, activation=network.activation)
    return result, reduce(source, Residuals(result, result.n_outputs, result.n_hidden)).mse


def _descend_hidden(source: Source, student: Student, steps: int) -> Student:
    """Fit W by gradient descent with A fixed, from Algorithm 1's W; steps are halved until the error falls."""
    size = 1.0 / max(float(np.linalg.norm(student.top, 2)) ** 2, 1e-300)  # for inputs of unit second moment
    here = reduce(source, HiddenGradient(student))
    for _ in range(steps):
        moved = student.moved(size * here.average("descent"))
        there = reduce(source, HiddenGradient(moved))
        if there.sums["rr"] < here.sums["rr"]:
            student, here, size = moved, there, 1.5 * size
        else:
            size *= 0.5
    return student


def _refuse(task: Task) -> str | None:
    if task.bias:
        return "symmetric is for networks without biases: give bias=False (--no-bias), or use another method."
    if gains(task.activation) is None:
        return (
            f"symmetric needs act(z) = h z + g |z|, h and g not 0: relu or leaky_relu. Got {task.activation} instead."
        )
    if task.n_hidden is not None and task.n_hidden > min(task.n_inputs, task.n_outputs):
        return (
            f"symmetric needs at least as many inputs and outputs as hidden units. Got {task.n_inputs} inputs and "
            f"{task.n_outputs} outputs for {task.n_hidden} units instead."
        )
    return None


def _run(call: Call) -> Estimate:
    settings = {"best": OURS, "paper": PAPER, "practice": PAPER_IN_PRACTICE}[call.form]
    if call.deadline.passed and call.form == "best":
        settings = replace(OURS, detector="noisy")
    white = call.source if settings.whiten else _whitened(call.source)
    options = call.options_as(SymmetricOptions)
    test = symmetry_test(white, call.rng, options)
    try:
        found = learn(call.source, call.task.n_hidden, call.task.activation, call.rng, settings, options)
    except UnsolvableError as reason:
        return Estimate(None, (test.sentence, str(reason)))
    best = found[0]
    counted = f"{best.network.n_hidden} units by the gap of the detector's singular values; "
    note = (
        f"{'' if call.task.n_hidden else counted}{best.detector} detector, gap {best.gap:.3g}, residual "
        f"{np.sqrt(best.mse):.2e} (linear part regressed beside {best.linear.even_features} even features)"
    )
    distinguishing = distinguish(best.network, call.source, options) if settings.whiten else None
    best = replace(best, distinguishing=distinguishing, symmetry=test)
    return Estimate(best.network, (test.sentence, note), tuple(other.network.W for other in found[1:]), best)


def _whitened(source: Source) -> Source:
    """Return the samples with inputs of unit second moment, on which symmetry is tested."""
    d, p = source.n_inputs, source.n_outputs
    return Mapped(source, Whitening.of(np.zeros(d), reduce(source, Moments(d, p)).xx))


def _diagnose(network: Model, source: Source, rng: np.random.Generator) -> tuple[Check, ...]:
    """Return checks whether the inputs are symmetric, and how well they distinguish the units."""
    test = symmetry_test(source, rng)
    symmetric = Check("symmetric inputs", test.symmetric, test.p_value, test.significance, test.sentence)
    distinct = distinguish(network, source) if isinstance(network, Network) else None
    if distinct is None:
        return (symmetric,)
    return symmetric, Check("distinguishing", distinct.rank_possible, distinct.sigma_min, None, distinct.sentence)


ALGORITHM = Algorithm(
    name="symmetric",
    paper="GKLW19, Algorithms 1 to 4",
    assumes="inputs distributed like −x; no biases; as many outputs and inputs as units, or more; relu or leaky_relu",
    refuse=_refuse,
    run=_run,
    forms=("best", "paper", "practice"),
    options=dict.fromkeys(("best", "paper", "practice"), SymmetricOptions),
    raw=("paper", "practice"),
    prepare=lambda source: with_reflections(source) if isinstance(source, Oracle) else source,
    diagnose=_diagnose,
    reserve=True,
    weighs=True,
)
