"""Compare two networks, up to the symmetries that do not change a network's function.

Units may be permuted; a unit's scale may move between w and its column a of A (`Network.fixed_scales`); a unit
that adds only a constant belongs in c; units with the same (w, b) are one unit; and if
act(−z) = s·act(z) + κ, a unit may be mirrored,

    a·act(w·x + b) = s·a·act(−w·x − b) + κ·a.

With one hidden layer and an affine term C x, units with act(z) − act(−z) = m z may be mirrored too, which adds m·a·wᵀ
to C and m·a·b to c (`Network.normal_form`). If only one of the networks has C, the other gets a C of zeros.

Units are paired so that the sum over pairs of the distance between (ŵ, b̂) and (w, b), or its mirror image
if allowed, is smallest. The distance is not squared: by the triangle inequality a unit that was found
exactly then keeps its partner, however large the error of another unit is.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neurecover.models import Composite, DeepNetwork, Layered, Model, Network, Polynomial, Upper, check_network
from neurecover.models.merging import mirror_units, simplify, unit_distances
from neurecover.random import as_generator


@dataclass(frozen=True)
class MatchOptions:
    """The inputs on which outputs are compared, and when biases are measured in their own unit."""

    samples: int = 10_000  # Gaussian inputs for `output_mse`, whose relative standard error is then about 0.02
    far: float = 1e3  # ratio of a bias to the norm of its row above which the inputs are far from zero


OPTIONS = MatchOptions()


@dataclass(frozen=True, eq=False)
class LayerComparison:
    """The errors of one hidden layer, with fields as in `Comparison`."""

    permutation: NDArray[np.intp]
    signs: NDArray[np.int_]
    weight_error: float
    bias_error: float
    max_angle: float
    unmatched: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The errors of a network against the truth, both in normal form and without spare units.

    Attributes
    ----------
    weight_error, bias_error, max_angle : float
        The largest ‖ŵ − w‖, abs(b̂ − b) and angle in radians over the paired units of all hidden layers. Units without
        a partner do not count; infinite if one network has units and the other has none.
    output_weight_error : float
        ‖Â − A‖_F / ‖A‖_F, with a = 0 for a missing partner.
    offset_error : float
        ‖ĉ − c‖ / ‖(A, c)‖_F, so that c = 0 is no special case.
    affine_error : float or None
        ‖Ĉ − C‖_F / ‖(A, C)‖_F, with zeros for a missing C; None if neither network has one. Ĉ and ĉ are those after
        units were mirrored.
    output_mse : float
        The mean of (f̂(x) − f(x))² over inputs and outputs.
    population_risk : float or None
        The expectation of the same square over standard Gaussian inputs; None for more than one layer, or an activation
        without an exact form.
    permutation, signs : ndarray of int
        For unit i of the truth's first hidden layer, the network's unit that is paired with it, −1 if there is none;
        `signs` is −1 if this unit was mirrored.
    unmatched : tuple of two tuples of int
        The units of the first hidden layer without a partner, of the network and of the truth.
    layers : tuple of LayerComparison
        The errors of every hidden layer.

    Notes
    -----
    For a `Composite`, output_weight_error and offset_error compare the upper parts: the coefficients of polynomials or
    the weights of networks; nan if the upper parts are of different kinds.

    References
    ----------
    .. [ATV21] Proposition 3.6, for the population risk.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(3, 2, random_state=0)
    >>> nr.compare(truth, truth).weight_error
    0.0
    """

    permutation: NDArray[np.intp]
    signs: NDArray[np.int_]
    weight_error: float
    bias_error: float
    output_weight_error: float
    offset_error: float
    max_angle: float
    output_mse: float
    population_risk: float | None
    unmatched: tuple[tuple[int, ...], tuple[int, ...]]
    layers: tuple[LayerComparison, ...]
    affine_error: float | None = None

    def rows(self) -> list[tuple[str, float, str]]:
        """Return the name, the value and the meaning of every error."""
        ours, theirs = (", ".join(map(str, units)) or "none" for units in self.unmatched)
        unpaired = f"units without a partner: {ours} of the network, {theirs} of the truth"
        affine = [] if self.affine_error is None else [("affine term", self.affine_error, "‖Ĉ − C‖ / ‖(A, C)‖")]
        return [
            ("weights", self.weight_error, "largest ‖ŵ − w‖ of a pair of units in normal form"),
            ("biases", self.bias_error, "largest |b̂ − b| of a pair of units"),
            ("output weights", self.output_weight_error, "‖Â − A‖ / ‖A‖, unpaired units included"),
            *affine,
            ("offset", self.offset_error, "‖ĉ − c‖ / ‖(A, c)‖"),
            ("angle", self.max_angle, "largest angle between ŵ and w, in radians"),
            ("outputs", self.output_mse, "mean squared difference on Gaussian inputs"),
            ("unpaired", sum(map(len, self.unmatched)), unpaired),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{name:<15} {value:>8.2g}   {meaning}" for name, value, meaning in self.rows())

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("comparison", self)


def compare(network: Model, truth: Model, *, up_to_sign: bool = False, X: ArrayLike | None = None) -> Comparison:
    """Return the errors of a network against the truth, after pairing their units.

    A tanh network is rewritten to be compared with a sigmoid network, and vice versa: sigmoid(z) = (1 + tanh(z/2))/2.
    Units of several layers are paired from the first layer up, each layer after the pairs below it are in order.

    Parameters
    ----------
    network, truth : Network, DeepNetwork or Composite
        Networks with the same number of hidden layers, or two composites, whose first layers are compared.
    up_to_sign : bool, default=False
        Allow pairing a unit with a mirror image that is another function, such as relu(−z), without changing A and c.
        In this sense a method recovers units "up to sign" [ATV21]. A mirror image with the same function is always
        allowed; A, c, and C if either network has one, are then changed accordingly.
    X : array_like of shape (n, d) or None, default=None
        The inputs for `output_mse`; None for 10,000 standard Gaussian inputs, the same every time.

    Returns
    -------
    Comparison
        Errors of weights, biases and outputs, and the pairs of units.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.Network([[1.0, 0.0], [0.0, 1.0]], None, [[1.0, 2.0]])
    >>> found = nr.Network([[0.0, 2.0], [1.0, 0.0]], None, [[1.0, 1.0]])  # the other order, another scale
    >>> nr.compare(found, truth).weight_error, nr.compare(found, truth).permutation
    (0.0, array([1, 0]))
    """
    check_network(network, "compare")
    check_network(truth, "compare")
    network = _in_terms_of(network, truth)
    _check_comparable(network, truth)
    if isinstance(network, Composite) and isinstance(truth, Composite):
        return _compare_composites(network, truth, up_to_sign, X)
    assert isinstance(network, Layered)
    assert isinstance(truth, Layered)
    if truth.depth == 1:
        return _compare_shallow(_shallow(network, truth), _shallow(truth, network), up_to_sign, X)
    return _compare_deep(network, truth, up_to_sign, X)


def _compare_shallow(network: Network, truth: Network, up_to_sign: bool, X: ArrayLike | None) -> Comparison:
    estimate, estimate_groups = simplify(network)
    target, target_groups = simplify(truth)
    paired = _pair(estimate, target, up_to_sign)
    A_error = float(np.linalg.norm(np.hstack([paired.ours.A - paired.theirs.A, *paired.unpaired])))
    A_size = float(np.linalg.norm(target.A))
    c_error = float(np.linalg.norm(paired.ours.c - target.c))
    c_size = float(np.linalg.norm(target.c))
    layer = paired.errors(_firsts(estimate_groups), _firsts(target_groups), truth.n_hidden)
    return _comparison(
        (layer,),
        output_weight_error=_ratio(A_error, A_size),
        offset_error=_ratio(c_error, math.hypot(A_size, c_size)),
        affine_error=_affine_error(paired.ours.C, target.C, A_size),
        output_mse=_output_mse(network, truth, X),
        population_risk=_population_risk(network, truth),
    )


def _compare_composites(network: Composite, truth: Composite, up_to_sign: bool, X: ArrayLike | None) -> Comparison:
    deep, true = network.to_deep(), truth.to_deep()
    if deep is not None and true is not None and deep.depth == true.depth:
        return _compare_deep(deep, true, up_to_sign, X)
    estimate, target = network.lower.fixed_scales(), truth.lower.fixed_scales()
    paired = _pair(estimate, target, up_to_sign)
    layer = paired.errors(np.arange(network.n_hidden), np.arange(truth.n_hidden), truth.n_hidden)
    layers, above, offset = _compare_uppers(network.normal_form().upper, truth.normal_form().upper, paired)
    return _comparison(
        (layer, *layers),
        output_weight_error=above,
        offset_error=offset,
        output_mse=_output_mse(network, truth, X),
        population_risk=None,
    )


def _compare_deep(network: Layered, truth: Layered, up_to_sign: bool, X: ArrayLike | None) -> Comparison:
    """Compare layer by layer: the pairs of a layer bring the columns of the next one into the truth's order."""
    estimate, target = network.fixed_scales(), truth.fixed_scales()
    ours = list(estimate.layers)
    layers = []
    for number, (W, b) in enumerate(target.layers[:-1]):
        V, a = ours[number]
        above, beyond = ours[number + 1], target.layers[number + 1]
        # Units below without a partner come last, and the other network gets columns of zeros for them.
        V, W = _padded(V, W)
        paired = _pair(
            Network(V, a, above[0], above[1], target.activation),
            Network(W, b, beyond[0], beyond[1], target.activation),
            up_to_sign,
        )
        layers.append(paired.errors(np.arange(len(V)), np.arange(len(W)), len(W)))
        columns = np.zeros((len(above[0]), len(W) + len(V) - len(paired.found)))
        columns[:, paired.sought] = paired.ours.A
        columns[:, len(W) :] = paired.unpaired[0]
        ours[number + 1] = (columns, paired.ours.c)
    (A, c), (A_true, c_true) = ours[-1], target.layers[-1]
    A, A_true = _padded(A, A_true)
    A_size = float(np.linalg.norm(A_true))
    return _comparison(
        tuple(layers),
        output_weight_error=_ratio(float(np.linalg.norm(A - A_true)), A_size),
        offset_error=_ratio(float(np.linalg.norm(c - c_true)), math.hypot(A_size, float(np.linalg.norm(c_true)))),
        affine_error=_affine_error(estimate.C, target.C, A_size),
        output_mse=_output_mse(network, truth, X),
        population_risk=None,
    )


def _shallow(network: Layered, other: Layered) -> Network:
    """Return a network of one hidden layer, with a C of zeros if only the other network has one."""
    (W, b), (A, c) = network.layers
    C = np.zeros((network.n_outputs, network.n_inputs)) if network.C is None and other.C is not None else network.C
    return Network(W, b, A, c, network.activation, C)


def _affine_error(ours: np.ndarray | None, theirs: np.ndarray | None, A_size: float) -> float | None:
    if ours is None and theirs is None:
        return None
    ours, theirs = (np.zeros((1, 1)) if C is None else C for C in (ours, theirs))
    return _ratio(float(np.linalg.norm(ours - theirs)), math.hypot(A_size, float(np.linalg.norm(theirs))))


def _comparison(layers: tuple[LayerComparison, ...], **errors: Any) -> Comparison:
    largest = {
        name: max((getattr(layer, name) for layer in layers), default=0.0)
        for name in ("weight_error", "bias_error", "max_angle")
    }
    empty = LayerComparison(np.zeros(0, dtype=int), np.zeros(0, dtype=int), 0.0, 0.0, 0.0, ((), ()))
    first = layers[0] if layers else empty
    return Comparison(first.permutation, first.signs, unmatched=first.unmatched, layers=layers, **largest, **errors)


@dataclass(frozen=True)
class _Pairs:
    """Units `found` of one network, paired with the units `sought` of the other; `ours` are mirrored to match `theirs`.

    `unpaired` are the columns of A of units without a partner; those of the other network have the opposite sign.
    """

    found: np.ndarray
    sought: np.ndarray
    signs: np.ndarray
    ours: Network
    theirs: Network
    unpaired: tuple[np.ndarray, np.ndarray]
    sizes: tuple[int, int]

    def errors(self, ours: np.ndarray, theirs: np.ndarray, n_hidden: int) -> LayerComparison:
        """Return the errors of the pairs; `ours` and `theirs` are the indices of the units in the caller's networks."""
        least = math.inf if self.found.size == 0 and max(self.sizes) > 0 else 0.0
        permutation, signs = np.full(n_hidden, -1), np.ones(n_hidden, dtype=int)
        permutation[theirs[self.sought]] = ours[self.found]
        signs[theirs[self.sought]] = self.signs
        return LayerComparison(
            permutation=permutation,
            signs=signs,
            weight_error=float(np.linalg.norm(self.ours.W - self.theirs.W, axis=1).max(initial=least)),
            bias_error=float(np.abs(self.ours.b - self.theirs.b).max(initial=least)),
            max_angle=float(_angles(self.ours.W, self.theirs.W).max(initial=least)),
            unmatched=(tuple(np.delete(ours, self.found).tolist()), tuple(np.delete(theirs, self.sought).tolist())),
        )


def _compare_uppers(ours: Upper, theirs: Upper, paired: _Pairs) -> tuple[tuple[LayerComparison, ...], float, float]:
    """Return the comparison of the upper parts' layers and the relative errors; nan if the parts differ in kind.

    The weights of a polynomial are its coefficients, and the offset is its constant term. A unit without a partner is a
    variable that the other polynomial does not have.
    """
    if isinstance(ours, Polynomial) and isinstance(theirs, Polynomial):
        ends = _terms(ours, paired.found), _terms(theirs, paired.sought, first=ours.exponents.shape[1])
        zero = np.zeros(len(theirs.coefficients))
        pairs = {term: (ends[0].get(term, zero), ends[1].get(term, zero)) for term in {*ends[0], *ends[1]}}
        c_hat, c = pairs.pop((), (zero, zero))
        size = math.sqrt(sum(float(b @ b) for _, b in pairs.values()))
        off = math.sqrt(sum(float((a - b) @ (a - b)) for a, b in pairs.values()))
        return (
            (),
            _ratio(off, size),
            _ratio(float(np.linalg.norm(c_hat - c)), math.hypot(size, float(np.linalg.norm(c)))),
        )
    if not isinstance(ours, Network | DeepNetwork) or not isinstance(theirs, Network | DeepNetwork):
        return (), math.nan, math.nan
    alike = ours.activation == theirs.activation and ours.depth == theirs.depth
    if not alike or not len(paired.found) == ours.n_inputs == theirs.n_inputs:
        return (), math.nan, math.nan
    (W, b), *rest = ours.layers
    columns = np.empty_like(W)
    columns[:, paired.sought] = W[:, paired.found]
    above = compare(ours.with_layers([(columns, b), *rest], None), theirs)
    return above.layers, above.output_weight_error, above.offset_error


def _terms(upper: Polynomial, units: np.ndarray, first: int = 0) -> dict[tuple[tuple[int, int], ...], np.ndarray]:
    """Return the coefficient of each monomial ((variable, power), …); matched units are the first variables."""
    names = np.full(upper.exponents.shape[1], -1)
    names[units] = np.arange(len(units))
    unmatched = np.flatnonzero(names < 0)
    names[unmatched] = len(units) + first + np.arange(len(unmatched))
    terms: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    for powers, c in zip(upper.exponents, upper.coefficients.T):
        term = tuple(sorted((int(names[j]), int(powers[j])) for j in np.flatnonzero(powers)))
        terms[term] = terms.get(term, 0.0) + c
    return terms


def _pair(estimate: Network, target: Network, up_to_sign: bool) -> _Pairs:
    from scipy.optimize import linear_sum_assignment

    # If inputs are far from zero, biases have a large common part that does not distinguish units.
    largest = float(np.abs(np.concatenate([estimate.b, target.b])).max(initial=0.0))
    rows = float(np.linalg.norm(np.vstack([estimate.W, target.W]), axis=1).max(initial=0.0))
    size = largest if largest > OPTIONS.far * rows else 1.0
    distances, signs = unit_distances(estimate, target, up_to_sign, size)
    found, sought = linear_sum_assignment(distances)
    signs = signs[found, sought]
    return _Pairs(
        found,
        sought,
        signs,
        mirror_units(estimate.take(found), signs),
        target.take(sought),
        (np.delete(estimate.A, found, axis=1), -np.delete(target.A, sought, axis=1)),
        (estimate.n_hidden, target.n_hidden),
    )


def _padded(V: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pad the narrower matrix with columns of zeros; return both."""
    width = max(V.shape[1], W.shape[1])
    return np.pad(V, ((0, 0), (0, width - V.shape[1]))), np.pad(W, ((0, 0), (0, width - W.shape[1])))


def _firsts(groups: tuple[tuple[int, ...], ...]) -> np.ndarray:
    return np.array([group[0] for group in groups], dtype=int)


def _angles(U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return the angles between the rows, accurate also below 1e-8, where arccos(u·v) is not."""
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    return 2.0 * np.arctan2(np.linalg.norm(U - V, axis=1), np.linalg.norm(U + V, axis=1))


def _ratio(error: float, size: float) -> float:
    """Return error / size: 0 for no error, and infinity for an error relative to zero."""
    if error == 0:
        return 0.0
    return error / size if size > 0 else math.inf


def _population_risk(network: Network, truth: Network) -> float | None:
    from neurecover.models.risk import population_risk

    try:
        return population_risk(network, truth)
    except ValueError:  # the series of this activation is too rough
        return None


def _output_mse(network: Layered | Composite, truth: Layered | Composite, X: ArrayLike | None) -> float:
    if X is None:
        # A separate random stream, so that these are not the samples that a user drew with seed 0.
        X = as_generator(0, "compare").standard_normal((OPTIONS.samples, truth.n_inputs))
    difference = network(X) - truth(X)
    if len(difference) == 0:
        raise ValueError(f"X needs at least one sample. Got shape {np.shape(X)} instead.")
    return float(np.mean(difference**2))


def _in_terms_of(network: Model, truth: Model) -> Model:
    """Write a tanh network of one hidden layer as a sigmoid one, or back, if the truth is of that kind.

    A tanh(z) + c = 2A sigmoid(2z) + c − ΣA. Any other network is returned unchanged.
    """
    if isinstance(network, Composite) or isinstance(truth, Composite) or not network.depth == truth.depth == 1:
        return network
    scale = {("tanh", "sigmoid"): 2.0, ("sigmoid", "tanh"): 0.5}.get((str(network.activation), str(truth.activation)))
    if scale is None:
        return network
    (W, b), (A, c) = network.layers
    total = A.sum(axis=1)
    c = c + (total / 2.0 if scale < 1.0 else -total)
    return Network(scale * W, scale * b, scale * A, c, truth.activation, network.C)


def _check_comparable(network: Model, truth: Model) -> None:
    composites = isinstance(network, Composite), isinstance(truth, Composite)
    if composites[0] != composites[1]:
        raise ValueError(
            "compare needs two networks of the same kind. "
            f"Got a {type(network).__name__} and a {type(truth).__name__} instead."
        )
    for what in ("n_inputs", "n_outputs", "activation", *(() if composites[1] else ("depth",))):
        ours, theirs = getattr(network, what), getattr(truth, what)
        if ours != theirs:
            raise ValueError(f"compare needs two networks of the same {what}. Got {ours} and {theirs} instead.")
