"""`extract`: recover a network by chosen queries, with a certificate from held-out queries."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from neurecover import activations
from neurecover.activations import Activation
from neurecover.certificate import Certificate, Check, certify_constant
from neurecover.certificate.from_queries import Asked, certify_queried
from neurecover.data import Oracle, unwhiten
from neurecover.data.oracles.calls import listening
from neurecover.exceptions import RefusedError, UnsolvableError
from neurecover.excerpt import Excerpt
from neurecover.models import DeepNetwork, Network
from neurecover.pipeline.asking import (
    SETTLED,
    Teller,
    find_steps,
    make_box,
    recover_layers,
    recover_smooth,
    resumable,
    smaller,
)
from neurecover.pipeline.classifying import Classifier
from neurecover.pipeline.progress import Progress
from neurecover.pipeline.running import Run, add_diagnosis, running
from neurecover.queried import Queried
from neurecover.queries.box.black_box import Box
from neurecover.queries.diagnosis import diagnose_bounded, diagnose_changes, diagnose_inputs
from neurecover.queries.extraction import Extraction
from neurecover.queries.options import QueryOptions
from neurecover.queries.smooth.shape import find_shape
from neurecover.random import RandomStateLike
from neurecover.results import Recovery
from neurecover.solve import time_limit
from neurecover.statistics import Residuals

_RELU = activations.get("relu")
SMOOTH = (
    "If it has several hidden layers, give their number and their function, as depth=2, activation='tanh'. Other "
    "smooth units are found from samples: neurecover.recover(oracle, n_samples=2000, activation='auto')."
)


def extract(
    oracle: Any,
    n_hidden: int | tuple[int, ...] | None = None,
    depth: int | None = None,
    query_budget: int | None = None,
    accuracy: float | None = None,
    activation: str | Activation = "auto",
    random_state: RandomStateLike = None,
    time_budget: float | None = None,
    progress: bool | Progress = False,
    options: QueryOptions | None = None,
    price: float | None = None,
) -> Recovery[Network | DeepNetwork]:
    """Extract the network y = A h_L + c behind an oracle, h_l = act(W_l h_{l−1} + b_l), by chosen queries.

    Parameters
    ----------
    oracle : Oracle
        `neurecover.oracle(model)` or `neurecover.endpoint(url)`. Their arguments also say around which data (`like`),
        within which range (`bounds`) and how fast the model may be queried.
    n_hidden : int, tuple of int or None, default=None
        The number of hidden units, or one number per hidden layer; None finds it.
    depth : int or None, default=None
        The number of hidden layers; None takes it from n_hidden, or finds it.
    query_budget : int or None, default=None
        The largest number of queries; None for no limit.
    accuracy : float or None, default=None
        The wanted relative error of a unit's weights, for one hidden layer of piecewise linear units. A smaller error
        takes more queries, up to about twice as many. None aims at 5e-10 in a large network and at less in a small one.
    activation : str or Activation, default="auto"
        "auto" takes relu for a piecewise linear oracle with one or several hidden layers, or leaky_relu or abs if one
        layer shows their slope. It takes tanh for a smooth oracle that levels off, and otherwise the function that
        single bends show: gelu, silu, softplus, elu or selu. Any of these, or sigmoid, may be given.
        Several layers of other functions than relu are fitted to designed samples; give `depth`, unless it is
        leaky_relu. (sigmoid(z) = (1 + tanh(z/2))/2, so a network of one is a network of the other.)
    random_state, time_budget, progress
        As in `neurecover.recover`.
    options : QueryOptions or None, default=None
        The constants that decide how the oracle is queried, for experiments.
    price : float or None, default=None
        The cost of one query; the summary and the report then state the total.

    Returns
    -------
    Recovery
        `network`, `certificate` and `n_queries`. If the oracle is not such a network, the verdict says so, and the
        reasons say what kind of model it looks like.

    Raises
    ------
    ValueError
        For a model that is not wrapped as an oracle, or arguments that contradict each other.

    See Also
    --------
    recover : The same from samples, for models that cannot be queried at chosen inputs.

    Examples
    --------
    >>> import neurecover as nr
    >>> model = nr.simulate.teacher(5, 3, random_state=0)
    >>> r = nr.extract(nr.oracle(model, n_inputs=5), random_state=0)
    >>> r.certificate.verdict, nr.compare(r.network, model).weight_error < 1e-9
    ('exact', True)
    """
    if not isinstance(oracle, Oracle):
        raise ValueError(
            f"extract queries an oracle: wrap the model as neurecover.oracle(model). Got "
            f"{type(oracle).__name__} instead."
        )
    if price is not None and not price >= 0.0:
        raise ValueError(f"price needs a number from 0, what one query costs. Got {price!r}.")
    if accuracy is not None and not 0.0 < accuracy < 1.0:
        raise ValueError(f"accuracy needs a number between 0 and 1. Got {accuracy!r}.")
    act = None if isinstance(activation, str) and activation.strip() == "auto" else _check_activation(activation)
    widths, depth = _architecture(n_hidden, depth)
    if random_state is None and oracle.saved is not None:
        random_state = 0  # a later run must make the same queries to find their saved answers
    time_budget = smaller(time_budget, oracle.max_seconds)
    with running("extract", random_state, time_budget, progress) as run, resumable(oracle):
        with time_limit(run.deadline.moment, run.deadline.watch):
            box, read = make_box(oracle, query_budget, options or QueryOptions())
        tell = Teller(box, oracle, run)
        with listening(tell.pulse):
            network, certificate = _search(box, oracle, read, widths, depth, accuracy, act, n_hidden, run, tell)
            for _ in range(box.options.classifier.nearer):
                nearer = None if certificate.verdict in SETTLED else read.nearer()
                if nearer is None:
                    break
                read, box.limits = nearer, nearer.limits
                network, certificate = _search(box, oracle, read, widths, depth, accuracy, act, n_hidden, run, tell)
        told = read.check()
        if told is not None:
            certificate = replace(certificate, checks=(*certificate.checks, told))
        run.clock.stage("certify", certificate.verdict)
        run.clock.queried = _describe_queries(box, network, tell.errors, price)
    return run.recovery(network, certificate, "queries", None, box.queries)


def _search(
    box: Box,
    oracle: Oracle,
    read: Classifier,
    widths: tuple[int, ...] | None,
    depth: int | None,
    accuracy: float | None,
    activation: Activation | None,
    n_hidden: int | tuple[int, ...] | None,
    run: Run,
    tell: Teller,
) -> tuple[Network | DeepNetwork, Certificate]:
    """Search within the budgets; return the network found, or a constant, with its certificate."""
    network: Network | DeepNetwork
    p = oracle.n_outputs if read.probabilities is None else read.probabilities.n_logits
    constant = Network(np.zeros((0, box.n_inputs)), None, np.zeros((p, 0)), None, activation or _RELU)
    try:
        with time_limit(run.deadline.moment, run.deadline.watch):
            stranger = find_steps(oracle, box, read.pairs) or read.failure
            if stranger is not None:
                return constant, _certify_constant(constant, stranger, box.queries)
            extracted = _extract(box, widths, depth, accuracy, activation, run, tell)
        box.reserved = 0
        if isinstance(extracted, Recovery):  # from samples, with their certificate
            network, certificate = extracted.network, _held_far(box, extracted, run)
        else:
            with run.overtime(box.options.late):
                found = _to_input_units(extracted, box)
                tell.errors = found.errors
                network, certificate = _certify(box, found, n_hidden, run)
    except RefusedError as reason:
        return constant, _certify_constant(constant, str(reason), box.queries)
    except UnsolvableError as reason:
        network, certificate = constant, _certify_constant(constant, str(reason), box.queries)
    if certificate.verdict not in SETTLED:
        with suppress(UnsolvableError), run.overtime(box.options.late):
            unused, cause = diagnose_inputs(box)
            reproduced = any(check.name == "rounding" and check.passed for check in certificate.checks)
            if cause is None and not reproduced:
                cause = diagnose_changes(box, np.random.default_rng(1))
            plain = cause is None and read.probabilities is None
            if plain and unused is None and not box.coarse:
                cause = diagnose_bounded(box, np.random.default_rng(0))
            checks = tuple(Check("box", False, None, None, text) for text in (unused, cause) if text is not None)
            certificate = replace(certificate, checks=(*certificate.checks, *checks))
            if plain and cause is None and box.affordable >= box.options.diagnosis:
                certificate = add_diagnosis(certificate, oracle, network.activation)
    return network, certificate


def _held_far(box: Box, found: Recovery[Network | DeepNetwork], run: Run) -> Certificate:
    """Return the certificate of a network from samples; it is not exact if the oracle is another function far out."""
    from neurecover.queries.shallow.extract import measure_residual

    made, options = found.certificate, box.options
    if made.verdict != "exact" or box.affordable < options.shallow.held_out * len(options.shallow.distances):
        return made
    with run.overtime(options.late):
        off = measure_residual(box, lambda X: found.network(box.inputs(X)), run.rng)
    if off <= options.smooth.elsewhere:
        return made
    sentence = (
        f"Near the origin the network gives the answers back to rounding. At held-out queries far out it is off by "
        f"{off:.2g} of the answers: the oracle clips its inputs, or is another function there."
    )
    held = Check("rounding", False, off, options.smooth.elsewhere, sentence, "Use the network where its samples lie.")
    return replace(made, checks=tuple(held if check.name == "rounding" else check for check in made.checks))


def _extract(
    box: Box,
    widths: tuple[int, ...] | None,
    depth: int | None,
    accuracy: float | None,
    activation: Activation | None,
    run: Run,
    tell: Teller,
) -> Extraction | Recovery[Network | DeepNetwork]:
    """Extract piecewise linear or smooth units; without a given activation, decide by what the oracle looks like."""
    from neurecover.queries.box.curvature import is_curved
    from neurecover.queries.deep.layers import OtherUnitsError
    from neurecover.queries.lines.scan import NotPiecewiseLinearError

    if activation is not None and str(activation) != "relu" and depth not in (None, 1):
        return recover_layers(box, activation, depth, widths, run)
    if activation is not None and activation.homogeneity is None:
        return _extract_smooth(box, widths, depth, activation, run, tell)
    if activation is None and depth in (None, 1) and box.n_inputs > 1 and is_curved(box, run.rng):
        return _extract_smooth(box, widths, depth, None, run, tell)
    try:
        return _extract_straight(box, widths, depth, accuracy, activation, run, tell)
    except OtherUnitsError as error:
        run.clock.stage("several hidden layers", str(error))
        leaky = activations.get(f"leaky_relu({round(error.slope, box.options.deep.slope_digits)!r})")
        return recover_layers(box, leaky, depth or 2, widths, run)
    except NotPiecewiseLinearError as error:
        if activation is not None or depth not in (None, 1):
            raise UnsolvableError(f"{error} {SMOOTH}") from None
        return _extract_smooth(box, widths, depth, None, run, tell)


def _extract_smooth(
    box: Box, widths: tuple[int, ...] | None, depth: int | None, activation: Activation | None, run: Run, tell: Teller
) -> Extraction | Recovery[Network | DeepNetwork]:
    """Extract one hidden layer of smooth units: saturating units by chosen queries, others by designed samples."""
    from neurecover.queries.saturating.extract import ManyUnitsError
    from neurecover.queries.saturating.steps import NotSaturatingError

    shape = None
    if activation is None and not box.coarse and not box.limits:  # otherwise single bends cannot be seen
        with box.counting("activation"):
            shape = find_shape(box, run.rng)
        if shape is None:
            raise UnsolvableError(f"The oracle bends smoothly, but not as units of a known function do. {SMOOTH}")
    wanted, width = activation if shape is None else shape.activation, widths[0] if widths else None
    if wanted is None or _saturates(wanted):
        try:
            return _extract_saturating(box, width, wanted or activations.get("tanh"), run, tell)
        except ManyUnitsError as many:
            run.clock.stage("one hidden layer", str(many))
            width = width or many.n_units
        except NotSaturatingError:
            if activation is not None:
                raise
    found = recover_smooth(box, wanted, shape, width, run)
    if found is None:
        raise UnsolvableError(f"The oracle bends smoothly, but not as units of a known function do. {SMOOTH}")
    return found


def _extract_saturating(box: Box, width: int | None, activation: Activation, run: Run, tell: Teller) -> Extraction:
    """Extract one hidden layer of units that saturate."""
    from neurecover.queries.saturating.extract import ManyUnitsError, extract_saturating

    try:
        found = extract_saturating(
            box, activation=activation, n_hidden=width, rng=run.rng, deadline=run.deadline, progress=tell
        )
    except (RefusedError, ManyUnitsError):
        raise
    except UnsolvableError as reason:
        raise type(reason)(f"{reason} {SMOOTH}") from None
    run.clock.stage("one hidden layer", _stage_sentence(found))
    return found


def _extract_straight(
    box: Box,
    widths: tuple[int, ...] | None,
    depth: int | None,
    accuracy: float | None,
    activation: Activation | None,
    run: Run,
    tell: Teller,
) -> Extraction:
    """Extract one hidden layer unless more are wanted; several if one does not reproduce the oracle."""
    from neurecover.queries.deep.extract import FewDigitsError, extract_deep
    from neurecover.queries.deep.layers import OtherUnitsError
    from neurecover.queries.lines.scan import NotPiecewiseLinearError
    from neurecover.queries.shallow.extract import extract_shallow
    from neurecover.queries.shallow.search import SeveralLayersError

    relu = activation is None or str(activation) == "relu"
    found: Extraction | None = None
    reason, regions = "", None
    if depth in (None, 1):
        try:
            found = extract_shallow(
                box,
                activation=activation or _RELU,
                n_hidden=widths[0] if widths else None,
                accuracy=accuracy,
                maybe_deep=depth is None and relu,
                any_slope=activation is None,
                rng=run.rng,
                deadline=run.deadline,
                progress=tell,
            )
            run.clock.stage("one hidden layer", _stage_sentence(found))
        except (NotPiecewiseLinearError, RefusedError):
            raise  # several layers would not help
        except UnsolvableError as error:
            run.clock.stage("one hidden layer", str(error))
            reason = "" if isinstance(error, SeveralLayersError) else str(error)
            regions = error.regions if isinstance(error, SeveralLayersError) else None
    if depth == 1 or not relu or (found is not None and found.exact):
        if found is None:
            raise UnsolvableError(reason)
        return found
    try:
        deep = extract_deep(
            box, n_hidden=widths, depth=depth, regions=regions, rng=run.rng, deadline=run.deadline, progress=tell
        )
    except (RefusedError, OtherUnitsError, FewDigitsError):
        raise
    except UnsolvableError as error:
        # If the answers are too coarse to show several layers, the reason from one layer is the better one.
        raise UnsolvableError(reason if box.coarse and reason else str(error)) from None
    run.clock.stage("several hidden layers", _stage_sentence(deep))
    return deep


def _check_activation(activation: str | Activation) -> Activation:
    """Return the activation if it can be extracted; otherwise raise ValueError that says what to use instead."""
    from neurecover.queries.shallow.planes import slopes_of

    act = activations.get(activation)
    try:
        if act.homogeneity is not None:
            slopes_of(act)
        elif not act.differentiable:
            raise ValueError
    except ValueError:
        raise ValueError(
            f"extract finds units of relu, leaky_relu, abs and of smooth functions. Got {act} instead: "
            f"use samples for it, neurecover.recover(oracle, n_samples=2000, activation={str(act)!r})."
        ) from None
    return act


def _saturates(activation: Activation) -> bool:
    """Return whether units of this function level off on both sides."""
    from neurecover.queries.saturating.steps import limits_of

    try:
        limits_of(activation)
    except ValueError:
        return False
    return True


def _stage_sentence(found: Extraction) -> str:
    """Return a sentence on the size and residual of the network found."""
    size = found.network.n_hidden
    units = "-".join(map(str, size)) if isinstance(size, tuple) else str(size)
    return f"{units} units, {found.queries:,} queries, residual {found.residual:.2g}. {' '.join(found.notes)}".strip()


def _to_input_units(found: Extraction, box: Box) -> Extraction:
    """Return the extraction in the oracle's inputs x instead of the whitened queries z: w = M w_z.

    Errors are assumed equal in all directions of z. A weighted fit already has its network and errors in x.
    """
    if found.weighted is not None:
        return replace(found, network=found.weighted.network, errors=found.weighted.errors_of_rows())
    if box.whitening is None:
        return found
    network = unwhiten(found.network, box.whitening)
    assert isinstance(network, Network | DeepNetwork)
    M, V = box.whitening.matrix, found.network.hidden_weights[0]
    # The ratio of ‖M δw‖/‖M w‖ to ‖δw‖/‖w‖, for the units of the first layer.
    shrunk = np.linalg.norm(V, axis=1) / np.maximum(np.linalg.norm(V @ M.T, axis=1), 1e-300)
    errors = found.errors.copy()
    errors[: len(V)] *= np.linalg.norm(M) / np.sqrt(len(M)) * shrunk
    return replace(found, network=network, errors=errors)


def _certify(
    box: Box, found: Extraction, n_hidden: int | tuple[int, ...] | None, run: Run
) -> tuple[Network | DeepNetwork, Certificate]:
    """Certify the network on held-out queries."""
    options, network = box.options, found.network.normal_form()
    d = box.n_inputs
    Z = np.concatenate([distance * run.rng.standard_normal((options.held_out, d)) for distance in options.distances])
    Z = box.limits.pull_inside(Z)
    holdout = Residuals(network, network.n_outputs, int(np.sum(network.n_hidden)))
    with box.counting("held-out queries"):
        answers, X = box(Z), box.inputs(Z)
    holdout.update(X, answers)
    names = tuple(f"x{j}" for j in range(d)), tuple(f"y{j}" for j in range(network.n_outputs))
    run.clock.excerpt = Excerpt.of_answers(X, network, answers, network(X), *names)
    # In single precision, so that an oracle that computes in it gets the same inputs as the network.
    noisy = box.limits.pull_inside(run.rng.standard_normal((options.noise_queries, d))).astype(np.float32).astype(float)
    weighted = found.weighted if found.resolution > options.box.coarse else None
    with box.counting("held-out queries"):
        fresh = None if weighted is None else (box.inputs(noisy), box(noisy))
    evidence = Asked(
        box.queries,
        found.residual,
        found.resolution,
        found.exact,
        float(np.max(found.errors, initial=0.0)),
        found.unreached,
        weighted,
        fresh,
        found.signs_proved,
    )
    return network, certify_queried(network, evidence, holdout, n_hidden)


def _describe_queries(
    box: Box, network: Network | DeepNetwork, errors: np.ndarray | None, price: float | None
) -> Queried:
    """Return what the queries were used for and, if known, the errors (k,) of the hidden rows, layer by layer."""
    widths = np.atleast_1d(network.n_hidden)
    known = errors is not None and len(errors) == widths.sum()
    by_layer = tuple(np.split(errors, np.cumsum(widths)[:-1])) if known and errors is not None else ()
    purposes = tuple((purpose, count) for purpose, count in box.purposes.items() if count)
    return Queried(purposes, box.known_resolution, by_layer, box.line, price)


def _certify_constant(network: Network, reason: str, n_queries: int) -> Certificate:
    """Certify the constant that is returned in place of a network that was not found, with the reason."""
    return certify_constant(reason, Residuals(network, network.n_outputs), False, n_queries)


def _architecture(
    n_hidden: int | tuple[int, ...] | None, depth: int | None
) -> tuple[tuple[int, ...] | None, int | None]:
    """Return the widths and the depth, checked for consistency; None for either if unknown."""
    widths = None if n_hidden is None else tuple(n_hidden) if isinstance(n_hidden, tuple | list) else (n_hidden,)
    for what, values in (("n_hidden", widths or ()), ("depth", (depth,) if depth is not None else ())):
        whole = all(isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1 for k in values)
        if not whole:
            raise ValueError(f"{what} needs whole numbers from 1. Got {n_hidden if what == 'n_hidden' else depth!r}.")
    if widths is not None and depth is not None and depth != len(widths):
        raise ValueError(f"n_hidden={n_hidden!r} has {len(widths)} hidden layers. Got depth={depth} instead.")
    return widths, len(widths) if widths is not None else depth
