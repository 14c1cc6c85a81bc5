"""How far the weights can be trusted, said so that it is never better than the truth.

    exact         the held-out residual is at the level of rounding, and the samples determine every weight
    statistical   the residual is noise as far as a test can tell, and every weight has a standard error
    approximate   a good predictor (held-out R² ≥ 0.9) whose weights are not determined, or not shown to be right
    failed        anything else

Whatever cannot be checked counts against the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import f as f_distribution

from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.data import Source, Whitening, reduce
from neurecover.models import Network, Student, replace_arrays
from neurecover.results import Certificate, StandardErrors
from neurecover.statistics import GaussNewtonSums, Information, PreactivationRange, Residuals

EPS = float(np.finfo(np.float64).eps)
ROUNDING = 100 * EPS  # of the size of the terms that are added up
SINGULAR = 1e-13  # smallest eigenvalue of the scaled information
EXACT_WEIGHTS = 1e-8  # the largest error that rounding may have left in a weight of an exact network
SIGNIFICANCE = 1e-3
GOOD_R2 = 0.9
HEAVY = 9.0  # kurtosis of the held-out residual; Laplace noise has 6
MAX_PARAMETERS = 6_000  # beyond, the information matrix is not formed and nothing is certified
N_PROBES = 40
FEW, MARGINAL = 4, 3.0  # equations per parameter; worth of a unit that noise explains (measured)
WIDE, WEAK = 0.1, 4.0  # largest standard error of a weight, least output weight in standard errors


@dataclass(frozen=True)
class Evidence:
    """What the search knows and the samples do not show.

    asked is the number of units the caller gave (None: to be found), sign_choices how many assignments of signs fit
    (0: not determined), agreements how many independent descents ended at the same optimum, last_drop what the last
    unit that was dropped was worth, N·log(Σr² without it / Σr² with it) per parameter.
    """

    asked: int | None
    sign_choices: int
    agreements: int
    converged: bool
    last_drop: float


def certify(
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
    variance = float(holdout.output_variance.mean())
    r2 = 1.0 - holdout.mse / variance if variance > 0 else 0.0
    rounding = ROUNDING * _size(network, whitening)
    at_rounding = holdout.mse <= rounding**2
    reasons = [_holdout_sentence(holdout, r2, rounding, at_rounding)]
    doubts = _doubts(network, whitening, evidence)

    errors, noise_variance, n_samples = None, None, holdout.n
    n_parameters = network.n_parameters - (0 if bias else network.n_hidden + network.n_outputs)
    if network.n_hidden == 0:
        doubts.append("No hidden unit was found, so there is no weight to be certain of.")
    elif n_parameters > MAX_PARAMETERS:
        doubts.append(f"{n_parameters} parameters are more than the {MAX_PARAMETERS} whose identifiability is checked.")
    else:
        student = _student(network, bias)
        probes = _probes(student, rng)
        sums = reduce(samples, GaussNewtonSums(student, probes))
        n_samples = sums.n
        freedom = sums.n * network.n_outputs - (n_parameters - network.n_hidden)
        information = Information(sums)
        if freedom <= 0:
            doubts.append(
                f"{sums.n * network.n_outputs} equations cannot determine {n_parameters - network.n_hidden} parameters."
            )
        elif (weakest := information.weakest) < SINGULAR:
            doubts.append(_singular_sentence(sums, weakest))
        else:
            noise_variance = float(sums.sums["rr"]) / freedom
            errors = _standard_errors(
                information, whitening, max(noise_variance, (EPS * _size(network, whitening)) ** 2)
            )
            doubts += _kink_doubts(student, samples, at_rounding)
    identifiable = not doubts
    if identifiable and errors is not None:
        if at_rounding:
            doubts += _exactness_doubts(errors)
            verdict = "exact" if not doubts else "approximate"
        else:
            assert noise_variance is not None
            final = unwhitened(network, whitening)
            doubts += _noise_doubts(information, holdout, noise_variance, freedom, errors, evidence, final)
            verdict = "statistical" if not doubts else "approximate"
            reasons += [] if doubts else [_error_sentence(errors, noise_variance)]
            if not doubts and evidence.asked is None:
                reasons.append(
                    "The number of units was found: one too weak for this noise, or too like another, is not seen."
                )
    else:
        verdict = "approximate"
    if verdict == "approximate" and not (at_rounding or r2 >= GOOD_R2):
        verdict = "failed"
        reasons.append(f"It explains {max(r2, 0.0):.1%} of the held-out variance, less than {GOOD_R2:.0%}.")
    elif verdict == "exact" and errors is not None:
        reasons.append(
            f"The samples determine every weight; rounding leaves an error of the order of {_largest(errors):.0e}."
        )
        if evidence.asked is None and network.activation(np.array(-1.0)) == 0.0:
            reasons.append("The number of units was found: one that is off for all of these samples is not seen.")
    return Certificate(
        verdict,
        (*reasons, *doubts),
        holdout.mse,
        noise_variance if verdict == "statistical" else 0.0 if verdict == "exact" else None,
        identifiable,
        n_samples,
        holdout.n,
        errors if verdict in ("exact", "statistical") else None,
    )


def unwhitened(network: Network, whitening: Whitening) -> Network:
    """From whitened coordinates to those of the inputs, in normal form: w = matrix w_z, b = b_z − w·mean."""
    W = network.W @ whitening.matrix.T
    return replace_arrays(network, W=W, b=network.b - W @ whitening.mean).normal_form()


def _probes(student: Student, rng: np.random.Generator) -> np.ndarray:
    """Units that might be missing: half of them anywhere, half close to the units found, which may be two in one."""
    anywhere = rng.standard_normal((N_PROBES // 2, student.V.shape[1]))
    scale = np.linalg.norm(student.V, axis=1, keepdims=True)
    near = rng.integers(student.n_hidden, size=N_PROBES - len(anywhere))
    close = student.V[near] / np.maximum(scale[near], 1e-300) + 0.3 * rng.standard_normal(
        (len(near), student.V.shape[1])
    )
    return np.vstack([anywhere, close])


def _student(network: Network, bias: bool) -> Student:
    V = np.hstack([network.W, network.b[:, None]]) if bias else network.W
    readout = np.vstack([network.A.T, network.c[None]]) if bias else network.A.T
    return Student(network.activation, V, readout, bias, affine=False)


def _size(network: Network, whitening: Whitening) -> float:
    """The size of the terms whose sum is an output: what one rounding error is relative to.

    |A| (|act| + |w||z| + |b|) + |c|, with |z| about √r for whitened inputs; inputs far from zero lose digits before
    that.
    """
    w = np.linalg.norm(network.W, axis=1) * np.sqrt(max(whitening.rank, 1)) + np.abs(network.b)
    inside = np.abs(network.A) @ (np.abs(network.activation(w)) + np.abs(network.activation.derivative(w)) * w)
    spread = 1.0 / np.maximum(np.linalg.norm(whitening.matrix, axis=1), 1e-300)
    offset = 1.0 + float(np.max(np.abs(whitening.mean) / spread, initial=0.0))
    return float(np.max(inside * offset + np.abs(network.c), initial=0.0))


def _doubts(network: Network, whitening: Whitening, evidence: Evidence) -> list[str]:
    doubts = []
    d, r = whitening.matrix.shape
    if r < d:
        doubts.append(f"The inputs span {r} of {d} dimensions, so the weights along the others cannot be seen.")
    if evidence.sign_choices and evidence.asked is not None and evidence.asked != network.n_hidden:
        doubts.append(f"{evidence.asked} units were asked for and {network.n_hidden} are needed to fit these samples.")
    same = sign_ambiguities(network, tolerance=1e-7)  # [ATV21, eq. 5]
    if (choices := max(evidence.sign_choices, len(same.signs))) > 1:
        doubts.append(f"{choices} choices of the units' signs give the same function.")
    elif not same.complete:
        doubts.append(f"The signs of {network.n_hidden} units are too many to be searched for a second choice.")
    if evidence.sign_choices == 0:
        doubts.append(
            "An affine part is left that no choice of signs explains: units are missing, or never switch on samples."
        )
    if not network.activation.differentiable:
        doubts.append(f"{network.activation} has no derivative to test the weights with.")
    return doubts


def _kink_doubts(student: Student, samples: Source, at_rounding: bool) -> list[str]:
    """Units that few samples see from one of the two sides of their kink.

    On all other samples such a unit is linear, and takes in the z_j of relu(z_j) = relu(−z_j) + z_j when others are
    turned round: another network that fits as well, were it not for the few. Two of them that no noise disturbs can
    only agree with it by chance; one always can, because c is free. Two such units can share a kink between them.
    """
    if student.activation.homogeneity != 1.0 or not student.activation.odd_slope:
        return []
    seen = reduce(samples, PreactivationRange(student))
    fewest = np.minimum(seen.sums["on"], seen.n - seen.sums["on"])
    few = np.flatnonzero(fewest < student.V.shape[1])
    if len(few) == 0 or (at_rounding and len(few) == 1 and fewest[few[0]] >= 2):
        return []
    return [
        f"{len(few)} of {student.n_hidden} units have fewer samples on one side of their kink than weights "
        f"({fewest.min()} for {student.V.shape[1]}): other networks may fit these samples as well."
    ]


def _exactness_doubts(errors: StandardErrors) -> list[str]:
    largest = _largest(errors)
    if largest <= EXACT_WEIGHTS:
        return []
    return [f"The samples determine some weight so weakly that rounding may have moved it by {largest:.1e}."]


def _noise_doubts(
    information: Information,
    holdout: Residuals,
    noise_variance: float,
    freedom: int,
    errors: StandardErrors,
    evidence: Evidence,
    final: Network,
) -> list[str]:
    doubts = []
    variance = float(holdout.output_variance.mean())
    N = holdout.n * len(holdout.origin)
    if holdout.mse > variance * f_distribution.ppf(SIGNIFICANCE, N, N):
        doubts.append(
            f"The held-out error {holdout.mse:.3g} is not clearly below the outputs' variance {variance:.3g}."
        )
    if (kurtosis := holdout.kurtosis) > HEAVY:
        doubts.append(
            f"The residual has heavy tails (kurtosis {kurtosis:.1f}, Gaussian 3): least squares follows outliers."
        )
    equations = information.sums.n * len(holdout.origin)
    if equations < FEW * (parameters := equations - freedom):
        doubts.append(
            f"{equations} noisy equations for {parameters} parameters are fewer than {FEW} each: too few to tell noise "
            "from what is missing."
        )
    if evidence.asked is None and evidence.last_drop > MARGINAL:
        doubts.append(
            f"Whether there is one unit more is not clear: it would lower N·log Σr² by {evidence.last_drop:.1f} per "
            f"parameter, and noise explains {MARGINAL:g}."
        )
    if not evidence.converged:
        doubts.append("The last fit was stopped before it had converged.")
    if evidence.agreements == 0:
        doubts.append("No second descent from another start ended at this optimum, so a better one may exist.")
    p_structure = information.score_test(noise_variance)
    if p_structure < SIGNIFICANCE:
        doubts.append(f"The residual is not noise: it correlates with {N_PROBES} random units (p = {p_structure:.1e}).")
    ratio = holdout.mse / noise_variance
    p_holdout = float(f_distribution.sf(ratio, N, freedom))
    if p_holdout < SIGNIFICANCE:
        doubts.append(f"The held-out error is {ratio:.3g} times the noise on the fitted samples (p = {p_holdout:.1e}).")
    if (largest := float(errors.W.max(initial=0.0))) > WIDE:
        doubts.append(
            f"A weight's standard error is {largest:.2f} of a unit vector, more than {WIDE}: too wide to be an answer."
        )
    strength = np.sqrt(np.sum(final.A**2, axis=0) / np.sum(errors.A**2, axis=0))
    if (weakest := float(strength.min())) < WEAK:
        doubts.append(f"A unit's output weight is only {weakest:.1f} standard errors from zero: it may not exist.")
    return doubts


def _standard_errors(information: Information, whitening: Whitening, variance: float) -> StandardErrors | None:
    """√(σ² diag F⁻¹), carried from whitened coordinates to those of the inputs, in normal form there."""
    covariance = information.inverse()
    if covariance is None:
        return None
    student = information.student
    (m, D), (q, p) = student.V.shape, student.readout.shape
    d = len(whitening.mean)
    B = whitening.unit_map() if student.bias else whitening.matrix
    V = student.V @ B.T
    norm = np.linalg.norm(V[:, :d], axis=1)
    h = student.activation.homogeneity
    se_V, se_A = np.zeros((m, len(B))), np.zeros((p, m))
    for j in range(m):
        own = np.r_[j * D : (j + 1) * D, information.size + j : information.size + p * q : q]
        C = covariance[np.ix_(own, own)]
        T = np.zeros((len(B) + p, D + p))  # (δv, δA) in the inputs' coordinates
        T[: len(B), :D], T[len(B) :, D:] = B, np.eye(p)
        if h is not None:
            # Move along the free scale until the row keeps its length, then express it for a row of length one.
            free = np.concatenate([V[j], -h * student.A[:, j]])
            along = np.zeros(len(T))
            along[:d] = V[j, :d] / norm[j] ** 2
            T = (np.eye(len(T)) - np.outer(free, along)) @ T
            T[: len(B)] /= norm[j]
            T[len(B) :] *= norm[j] ** h
        elif student.activation.name == "exp" and student.bias:
            # The free direction is (b, −A) here, and the normal form has b = 0 and A e^b.
            T[len(B) :] = (T[len(B) :] + np.outer(student.A[:, j], T[d])) * np.exp(V[j, d])
            T[d] = 0.0
        se = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", T, C, T), 0.0))
        se_V[j], se_A[:, j] = se[: len(B)], se[len(B) :]
    rest = information.size + m + q * np.arange(p)
    se_c = np.sqrt(np.maximum(np.diag(covariance)[rest], 0.0)) if student.bias else np.zeros(p)
    root = np.sqrt(variance)
    se_b = se_V[:, d] if student.bias else np.zeros(m)
    return StandardErrors(root * se_V[:, :d], root * se_b, root * se_A, root * se_c)


def _largest(errors: StandardErrors) -> float:
    return float(max(errors.W.max(initial=0.0), errors.b.max(initial=0.0)))


def _holdout_sentence(holdout: Residuals, r2: float, rounding: float, at_rounding: bool) -> str:
    rms = np.sqrt(holdout.mse)
    if at_rounding:
        return f"On {holdout.n} held-out samples the residual is {rms:.1e}, the level of rounding ({rounding:.1e})."
    return f"On {holdout.n} held-out samples the residual is {rms:.2e}, which leaves R² = {r2:.6f}."


def _singular_sentence(sums: GaussNewtonSums, weakest: float) -> str:
    on = np.count_nonzero(np.diag(sums.curvature()[0]).reshape(sums.student.V.shape).max(axis=1) == 0.0)
    unseen = f" {on} of its units never switch on." if on else ""
    return (
        "The samples do not determine every weight: "
        f"the smallest eigenvalue of the information is about {weakest:.1e}.{unseen}"
    )


def _error_sentence(errors: StandardErrors, noise_variance: float) -> str:
    return (
        f"The residual is noise of standard deviation {np.sqrt(noise_variance):.3g}; "
        f"the largest standard error of a weight is {_largest(errors):.2e}."
    )
