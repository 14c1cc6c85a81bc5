"""scikit-learn's multi-layer perceptrons, alone or after scalers in a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurecover.models.deep import DeepNetwork
from neurecover.models.formats.chain import Chain
from neurecover.models.layered import Layer, Layered
from neurecover.models.network import Network

_ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "logistic": "sigmoid", "identity": "identity"}
_NAMES = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}


def from_sklearn(estimator: Any) -> Network | DeepNetwork:
    """Return the network that computes a regressor's predictions, or a classifier's log-ratios of probabilities."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    chain = Chain(f"the estimator {type(estimator).__name__}")
    _add(chain, estimator)
    return chain.network()


def to_sklearn(network: Layered) -> Any:
    """Return an `MLPRegressor` with the attributes that `predict` needs and `fit` would set."""
    from sklearn.neural_network import MLPRegressor

    if str(network.activation) not in _NAMES:
        known = ", ".join(_NAMES)
        raise ValueError(f"scikit-learn's perceptrons have the activations {known}. Got {network.activation} instead.")
    if network.C is not None:
        raise ValueError(
            "scikit-learn's perceptrons have no affine term. Got a network with C; use to_torch or to_onnx."
        )
    layers = network.layers
    widths = tuple(len(W) for W, _ in layers[:-1])
    if not widths or 0 in widths:
        raise ValueError("scikit-learn's perceptrons have a unit in every hidden layer, and one such layer at least.")
    estimator = MLPRegressor(hidden_layer_sizes=widths, activation=_NAMES[str(network.activation)])
    estimator.coefs_ = [W.T.copy() for W, _ in layers]
    estimator.intercepts_ = [b.copy() for _, b in layers]
    estimator.n_features_in_, estimator.n_outputs_ = network.n_inputs, network.n_outputs
    estimator.n_layers_, estimator.out_activation_ = len(layers) + 1, "identity"
    estimator.n_iter_, estimator.t_, estimator.loss_curve_ = 0, 0, []
    estimator.loss_ = estimator.best_loss_ = np.nan
    return estimator


def _add(chain: Chain, part: Any) -> None:
    name = type(part).__name__
    adder = _ADDERS.get(name)
    if adder is None:
        raise ValueError(
            f"{chain.origin}: expected a perceptron of scikit-learn, or a pipeline of scalers and one. Got {name} "
            "instead; to ask it instead of reading it, use neurecover.oracle."
        )
    adder(chain, part)


def _add_pipeline(chain: Chain, pipeline: Any) -> None:
    for _, step in pipeline.steps:
        if step is not None and step != "passthrough":
            _add(chain, step)


def _add_recovery(chain: Chain, estimator: Any) -> None:
    network: Layered = estimator.network_
    below = chain.split()
    _add_layers(chain, network.layers, str(network.activation))
    if network.C is not None:
        below.affine(network.C)
        chain.add(below)


def _add_regressor(chain: Chain, estimator: Any) -> None:
    layers = tuple((W.T, b) for W, b in zip(estimator.coefs_, estimator.intercepts_))
    _add_layers(chain, layers, _ACTIVATIONS[estimator.activation])


def _add_classifier(chain: Chain, estimator: Any) -> None:
    """Add the logits: log p_j/p_1 = z_j − z_1 of a softmax; log p/(1 − p) = z of one logistic output."""
    _add_regressor(chain, estimator)
    if estimator.out_activation_ == "softmax":
        p = estimator.n_outputs_
        chain.affine(np.eye(p)[1:] - np.eye(p)[0])
    elif estimator.n_outputs_ > 1:
        raise ValueError(f"{chain.origin}: expected one label per sample. Got {estimator.n_outputs_} labels instead.")


def _add_layers(chain: Chain, layers: tuple[Layer, ...], activation: str) -> None:
    for number, (W, b) in enumerate(layers, start=1):
        chain.affine(W, b)
        if number < len(layers):
            chain.activation(activation)


def _add_target(chain: Chain, estimator: Any) -> None:
    """Add a regressor that predicts a transformed target t, then the inverse transform y = (t − shift) / factor."""
    _add(chain, estimator.regressor_)
    transformer = estimator.transformer_
    if type(transformer).__name__ not in _SCALERS:
        raise ValueError(f"{chain.origin}: expected a target that is scaled. Got {type(transformer).__name__} instead.")
    factor, shift = _scaling(transformer)
    chain.scale(1.0 / factor, -shift / factor)


def _add_scaler(chain: Chain, scaler: Any) -> None:
    chain.scale(*_scaling(scaler))


def _scaling(scaler: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the (factor, shift) of x ↦ factor ∘ x + shift."""
    name = type(scaler).__name__
    if getattr(scaler, "clip", False):
        raise ValueError(f"{name}: a scaler that clips is no part of a network. Got clip=True.")
    if name == "MinMaxScaler":
        return scaler.scale_, scaler.min_
    centre = {"StandardScaler": "mean_", "RobustScaler": "center_"}.get(name)
    shift = None if centre is None else getattr(scaler, centre)
    d = scaler.n_features_in_
    factor = np.ones(d) if scaler.scale_ is None else 1.0 / scaler.scale_
    return factor, np.zeros(d) if shift is None else -shift * factor


_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
_ADDERS = {
    "Pipeline": _add_pipeline,
    "MLPRegressor": _add_regressor,
    "MLPClassifier": _add_classifier,
    "NetworkRecovery": _add_recovery,
    "TransformedTargetRegressor": _add_target,
    **dict.fromkeys(_SCALERS, _add_scaler),
}
