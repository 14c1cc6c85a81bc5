"""The certificate of any network, several layers or a composite, from the Jacobian of its outputs by its parameters."""

from __future__ import annotations

import numpy as np

from neurecover.certificate import checks
from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.certificate.checks import EPS, ROUNDING, Evidence
from neurecover.certificate.information import Information, aligned, array_names, standard_errors
from neurecover.certificate.shallow import issue
from neurecover.certificate.verdict import Certificate, Check, ParameterArrays, passed
from neurecover.data import Source, Whitening, reduce
from neurecover.models import Composite, DeepNetwork, Model, Network, Polynomial, parameters, term_sizes
from neurecover.statistics import ModelSums, Residuals, UnitsOn, incoming

N_PROBES = 40


def certify_model(
    model: Model,
    whitening: Whitening,
    samples: Source,
    holdout: Residuals,
    evidence: Evidence,
    rng: np.random.Generator,
) -> Certificate:
    """The certificate of a network on whitened inputs that was fitted to all `samples`.

    `holdout` are the residuals, on samples that had no part in it, of the network as it was before the held-out ones
    joined the fit.
    """
    X, _ = next(samples.blocks(1_000))
    size = _offset(whitening) * float(np.sqrt(np.mean(term_sizes(model, np.asarray(X, dtype=np.float64)) ** 2)))
    made = [*checks.held_out(holdout, ROUNDING * size), *_structural(model, whitening, evidence)]
    n_samples, noise_variance, errors = holdout.n, None, None
    if passed(made, ("units", "size", "derivative")):
        white, normal = aligned(model, whitening)
        sums = reduce(samples, ModelSums(white, _probes(white, rng)))
        n_samples, n_equations = sums.n, sums.n * model.n_outputs
        information = Information.of_model(sums)
        n_free = information.n_determinable
        made.append(checks.equations(n_equations, n_free))
        made.append(checks.information(information.weakest, _never_on(model, samples)))
        if passed(made, ("equations", "information")):
            noise_variance = float(sums.sums["rr"].sum()) / (n_equations - n_free)
            errors = standard_errors(information, normal, whitening, max(noise_variance, (EPS * size) ** 2))
            made.append(_kinks(model, samples, made[0].passed))
            made += _about_errors(normal, holdout, evidence, information, noise_variance, errors, n_equations, made[0])
    return issue(tuple(made), holdout, n_samples, noise_variance, errors)


def _structural(model: Model, whitening: Whitening, evidence: Evidence) -> list[Check]:
    """What takes no pass over the samples."""
    d, r = whitening.matrix.shape
    choices, complete, n_units = 1, True, sum(len(W) for W in model.hidden_weights)
    for layer in _as_layers(model):
        same = sign_ambiguities(layer, tolerance=1e-7)  # [ATV21, eq. 5], layer by layer
        choices, complete = max(choices, len(same.signs)), complete and same.complete
    known = not isinstance(model, Composite) or isinstance(model.upper, Polynomial | Network | DeepNetwork)
    return [
        checks.units(n_units),
        checks.inputs(r, d),
        checks.width(evidence, model.n_hidden),
        checks.signs(max(evidence.sign_choices, choices), complete, n_units),
        checks.affine_part(evidence.sign_choices),
        checks.derivative(model.activation.differentiable and known, str(model.activation)),
        checks.size(len(parameters(model))),
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
    hidden = _hidden_names(normal)
    largest = errors.largest(*hidden)
    if rounding.passed:
        found = [checks.found_width(exact=True)] if evidence.asked is None else []
        return [checks.digits(largest), *found]
    n_free = information.n_determinable
    p_structure = information.score_test(noise_variance)
    made = checks.noise(holdout, noise_variance, n_equations, n_equations - n_free, p_structure, evidence)
    made += checks.precision(errors.largest(*(name for name in hidden if "W" in name)), _strength(normal, errors))
    if all(check.passed for check in made):
        made.append(checks.noise_level(noise_variance, largest))
        made += [checks.found_width(exact=False)] if evidence.asked is None else []
    return made


def _strength(normal: Model, errors: ParameterArrays) -> np.ndarray:
    """The weights above every unit of the last hidden layer over their errors; of a polynomial, its coefficients."""
    name = "coefficients" if "coefficients" in errors else list(errors)[-2]
    spread = np.linalg.norm(errors[name], axis=0)
    return np.linalg.norm(normal.to_arrays()[name], axis=0) / np.maximum(spread, 1e-300)


def _as_layers(model: Model) -> list[Network]:
    """Every hidden layer with the weights above it as a network of one hidden layer."""
    if isinstance(model, Network):
        return [model]
    if isinstance(model, DeepNetwork):
        pairs = zip(model.layers, model.layers[1:])
        return [Network(W, b, A, c, model.activation) for (W, b), (A, c) in pairs]
    deep = model.to_deep()
    # Below a polynomial the signs of units are told by what is not linear in them.
    return [] if deep is None else _as_layers(deep)


def _probes(model: Model, rng: np.random.Generator) -> np.ndarray:
    """Units that might be missing in the first layer: half of them anywhere, half close to those found."""
    d = model.n_inputs
    first = model.hidden_weights[0]
    unit = first / np.maximum(np.linalg.norm(first, axis=1, keepdims=True), 1e-300)
    near = rng.integers(len(unit), size=N_PROBES // 2)
    close = np.column_stack([unit[near] + 0.3 * rng.standard_normal((len(near), d)), rng.standard_normal(len(near))])
    return np.vstack([rng.standard_normal((N_PROBES - len(near), d + 1)), close])


def _kinks(model: Model, samples: Source, at_rounding: bool) -> Check:
    wanted = incoming(model)
    if model.activation.homogeneity != 1.0 or not model.activation.odd_slope:
        return checks.kinks(wanted, int(wanted.max(initial=0)), at_rounding)
    seen = reduce(samples, UnitsOn(model))
    fewest = np.minimum(seen.sums["on"], seen.n - seen.sums["on"])
    worst = int(np.argmin(fewest - wanted)) if len(wanted) else 0
    return checks.kinks(fewest - wanted + wanted[worst], int(wanted[worst]), at_rounding)


def _never_on(model: Model, samples: Source) -> int:
    return int(np.count_nonzero(reduce(samples, UnitsOn(model)).sums["on"] == 0))


def _offset(whitening: Whitening) -> float:
    """How many times larger than the whitened inputs the inputs are: they lose digits before they are whitened."""
    spread = 1.0 / np.maximum(np.linalg.norm(whitening.matrix, axis=1), 1e-300)
    return 1.0 + float(np.max(np.abs(whitening.mean) / spread, initial=0.0))


def _hidden_names(model: Model) -> tuple[str, ...]:
    """The arrays of the hidden layers, of a composite those of its first."""
    return ("W", "threshold") if isinstance(model, Composite) else array_names(model)[:-2]
