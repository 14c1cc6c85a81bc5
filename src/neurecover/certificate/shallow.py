"""The certificate of a network with one hidden layer, from one pass over all samples and one over the held-out ones."""

from __future__ import annotations

import numpy as np

from neurecover.certificate import checks
from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.certificate.checks import EPS, ROUNDING, Evidence
from neurecover.certificate.information import Information, aligned, standard_errors
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays, passed, verdict_of
from neurecover.data import Source, Whitening, reduce
from neurecover.models import Model, Network, Student
from neurecover.statistics import GaussNewtonSums, PreactivationRange, Residuals

N_PROBES = 40


def certify_network(
    network: Network,
    whitening: Whitening,
    samples: Source,
    holdout: Residuals,
    evidence: Evidence,
    bias: bool,
    rng: np.random.Generator,
) -> Certificate:
    """The certificate of a network in whitened coordinates that was fitted to all `samples`.

    `holdout` are the residuals, on samples that had no part in it, of the network as it was before the held-out ones
    joined the fit.
    """
    size = term_size(network, whitening)
    made = [*checks.held_out(holdout, ROUNDING * size), *_structural(network, whitening, evidence, bias)]
    at_rounding = made[0].passed
    n_samples, noise_variance, errors = holdout.n, None, None
    if passed(made, ("units", "size")):
        white, normal = aligned(network, whitening)
        assert isinstance(white, Network)
        student = as_student(white, bias)
        sums = reduce(samples, GaussNewtonSums(student, _probes(student, rng)))
        information = Information.of_network(white, sums)
        n_samples, n_equations, n_free = sums.n, sums.n * network.n_outputs, information.n_determinable
        made.append(checks.equations(n_equations, n_free))
        made.append(checks.information(information.weakest, _never_on(sums)))
        if passed(made, ("equations", "information")):
            noise_variance = float(sums.sums["rr"]) / (n_equations - n_free)
            errors = standard_errors(information, normal, whitening, max(noise_variance, (EPS * size) ** 2))
            made.append(_kinks(student, samples, at_rounding))
            made += _about_errors(normal, holdout, evidence, information, noise_variance, errors, n_equations, made[0])
    return issue(tuple(made), holdout, n_samples, noise_variance, errors)


def issue(
    made: tuple[Check, ...],
    holdout: Residuals,
    n_samples: int,
    noise_variance: float | None = None,
    errors: ParameterArrays | None = None,
) -> Certificate:
    """The certificate of these checks; errors and noise are kept where the verdict vouches for them."""
    verdict = verdict_of(made)
    variance = {"exact": 0.0, "statistical": noise_variance}.get(verdict)
    kept = errors if verdict in ("exact", "statistical") else None
    return Certificate(made, holdout.mse, variance, n_samples, holdout.n, kept)


def certify_nothing(reason: str, holdout: Residuals, constant: bool, n_samples: int) -> Certificate:
    """The certificate of a constant in place of a network that was not to be had, and why it was not."""
    spread = float(holdout.output_variance.mean())
    r2 = 1.0 if constant else 1.0 - holdout.mse / spread if spread > 0.0 else 0.0
    predicts = f"The mean of the outputs explains {max(r2, 0.0):.1%} of the held-out variance."
    made = (Check("units", False, 0, 1, reason), Check("prediction", constant, r2, checks.GOOD_R2, predicts))
    return issue(made, holdout, n_samples)


def as_student(network: Network, bias: bool) -> Student:
    """The network as a student without affine part."""
    V = np.hstack([network.W, network.b[:, None]]) if bias else network.W
    readout = np.vstack([network.A.T, network.c[None]]) if bias else network.A.T
    return Student(network.activation, V, readout, bias, affine=False)


def term_size(network: Network, whitening: Whitening) -> float:
    """The size of the terms whose sum is an output: what one rounding error is relative to.

    |A| (|act| + |w||z| + |b|) + |c|, with |z| about √r for whitened inputs; inputs far from zero lose digits before
    that.
    """
    w = np.linalg.norm(network.W, axis=1) * np.sqrt(max(whitening.rank, 1)) + np.abs(network.b)
    inside = np.abs(network.A) @ (np.abs(network.activation(w)) + np.abs(network.activation.derivative(w)) * w)
    spread = 1.0 / np.maximum(np.linalg.norm(whitening.matrix, axis=1), 1e-300)
    offset = 1.0 + float(np.max(np.abs(whitening.mean) / spread, initial=0.0))
    return float(np.max(inside * offset + np.abs(network.c), initial=0.0))


def _structural(network: Network, whitening: Whitening, evidence: Evidence, bias: bool) -> list[Check]:
    """What takes no pass over the samples."""
    d, r = whitening.matrix.shape
    same = sign_ambiguities(network, tolerance=1e-7)  # [ATV21, eq. 5]
    return [
        checks.units(network.n_hidden),
        checks.inputs(r, d),
        checks.width(evidence, network.n_hidden),
        checks.signs(max(evidence.sign_choices, len(same.signs)), same.complete, network.n_hidden),
        checks.affine_part(evidence.sign_choices),
        checks.derivative(network.activation.differentiable, str(network.activation)),
        checks.size(_n_parameters(network, bias)),
    ]


def _about_errors(
    normal: Model,
    holdout: Residuals,
    evidence: Evidence,
    information: Information,
    noise_variance: float,
    errors: ParameterArrays,
    n_equations: int,
    rounding: Check,
) -> list[Check]:
    """Without noise, how many digits the weights have; with it, whether it is noise and what it leaves of them."""
    assert isinstance(normal, Network)
    largest = errors.largest("W", "b")
    if rounding.passed:
        silent = normal.activation(np.array(-1.0)) == 0.0
        found = [checks.found_width(exact=True)] if evidence.asked is None and silent else []
        return [checks.digits(largest), *found]
    strength = np.linalg.norm(normal.A, axis=0) / np.maximum(np.linalg.norm(errors.A, axis=0), 1e-300)
    freedom = n_equations - information.n_determinable
    made = checks.noise(holdout, noise_variance, n_equations, freedom, information.score_test(noise_variance), evidence)
    made += checks.precision(errors.largest("W"), strength)
    if all(check.passed for check in made):
        made.append(checks.noise_level(noise_variance, largest))
        made += [checks.found_width(exact=False)] if evidence.asked is None else []
    return made


def _n_parameters(network: Network, bias: bool) -> int:
    return network.n_parameters - (0 if bias else network.n_hidden + network.n_outputs)


def _probes(student: Student, rng: np.random.Generator) -> np.ndarray:
    """Units that might be missing: half of them anywhere, half close to the units found, which may be two in one."""
    anywhere = rng.standard_normal((N_PROBES // 2, student.V.shape[1]))
    scale = np.linalg.norm(student.V, axis=1, keepdims=True)
    near = rng.integers(student.n_hidden, size=N_PROBES - len(anywhere))
    close = student.V[near] / np.maximum(scale[near], 1e-300) + 0.3 * rng.standard_normal(
        (len(near), student.V.shape[1])
    )
    return np.vstack([anywhere, close])


def _kinks(student: Student, samples: Source, at_rounding: bool) -> Check:
    wanted = student.V.shape[1]
    if student.activation.homogeneity != 1.0 or not student.activation.odd_slope:
        return checks.kinks(np.full(student.n_hidden, wanted), wanted, at_rounding)
    seen = reduce(samples, PreactivationRange(student))
    return checks.kinks(np.minimum(seen.sums["on"], seen.n - seen.sums["on"]), wanted, at_rounding)


def _never_on(sums: GaussNewtonSums) -> int:
    return int(np.count_nonzero(np.diag(sums.curvature()[0]).reshape(sums.student.V.shape).max(axis=1) == 0.0))
