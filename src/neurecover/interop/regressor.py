"""`recover` as a scikit-learn regressor."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from neurecover.activations import Activation
from neurecover.data import as_source
from neurecover.data.opening import check_frame
from neurecover.data.options import PrepareOptions
from neurecover.exceptions import NotRecoveredWarning
from neurecover.interop.prediction_errors import PredictionErrors
from neurecover.models.checks import as_dense
from neurecover.pipeline import recover

_FEWEST = PrepareOptions().fewest


class NetworkRecovery(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """The network y = A·act(W x + b) + C x + c behind the samples, or one of several hidden layers, as a regressor.

    If the samples come from such a network, its weights are recovered, and `certificate_` says how far they can be
    trusted. If they do not, the network found is a predictor like any other, and the certificate says that too.

    Parameters
    ----------
    n_hidden : int, tuple of int or None, default=None
        The number of hidden units, or one number per hidden layer. None finds it.

    method : str, default="auto"
        "auto", or a name from :func:`neurecover.methods`.

    activation : str or Activation, default="relu"
        The hidden units' function, as in :class:`neurecover.Network`.

    bias : bool, default=True
        Whether biases and offsets are free; False fixes them at zero.

    affine : bool or "auto", default=False
        Whether there is a linear term C x beside the hidden units; "auto" keeps one if the samples call for it.

    depth : int, default=1
        The number of hidden layers, if `n_hidden` does not say it.

    loss : {"squared", "huber", "tukey"}, default="squared"
        What is made least; the robust ones bound the influence of outliers.

    time_budget : float or None, default=None
        Seconds after which no new work is started. With a budget, two fits with the same seed may differ.

    random_state : int, RandomState instance, Generator or None, default=None
        The seed of the search. Pass an int for the same answer across calls.

    Attributes
    ----------
    network_ : Network or DeepNetwork
        The network found, in normal form.

    certificate_ : Certificate
        Its verdict, the checks that led to it, and the weights' standard errors.

    recovery_ : Recovery
        The whole answer of :func:`neurecover.recover`, with its stages.

    coefs_ : list of ndarray of shape (n_in, n_out)
        The weights layer by layer, laid out as in :class:`sklearn.neural_network.MLPRegressor`.

    intercepts_ : list of ndarray of shape (n_out,)
        The biases layer by layer.

    affine_coef_ : ndarray of shape (n_features, n_outputs) or None
        The weights of the linear term, laid out as the others; None where there is none.

    n_outputs_ : int
        The number of outputs.

    n_features_in_ : int
        The number of inputs seen during fit.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, if X had any.

    See Also
    --------
    neurecover.recover : The function behind it, for files, streams and oracles as well.
    HalfspaceUnion : A classifier for labels alone.

    References
    ----------
    .. [1] P. Awasthi, A. Tang, A. Vijayaraghavan, "Efficient algorithms for learning depth-2 neural networks with
           general ReLU activations", NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> import neurecover as nr
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> y = np.maximum(X @ [1.0, -2.0, 0.5], 0.0) + 1.0
    >>> model = nr.NetworkRecovery(random_state=0).fit(X, y)
    >>> model.certificate_.verdict
    'exact'
    >>> model.network_.n_hidden
    1
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hidden": [Interval(Integral, 1, None, closed="left"), tuple, None],
        "method": [str],
        "activation": [str, Activation],
        "bias": ["boolean"],
        "affine": ["boolean", StrOptions({"auto"})],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions({"squared", "huber", "tukey"})],
        "time_budget": [Interval(Real, 0, None, closed="left"), None],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        n_hidden: int | tuple[int, ...] | None = None,
        method: str = "auto",
        activation: str | Activation = "relu",
        bias: bool = True,
        affine: bool | str = False,
        depth: int = 1,
        time_budget: float | None = None,
        random_state: Any = None,
        loss: str = "squared",
    ) -> None:
        self.n_hidden = n_hidden
        self.method = method
        self.activation = activation
        self.bias = bias
        self.affine = affine
        self.depth = depth
        self.time_budget = time_budget
        self.random_state = random_state
        self.loss = loss

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Recover the network.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The inputs; sparse ones are written out.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            The outputs.

        sample_weight : array-like of shape (n_samples,), default=None
            The weights of the samples, as in :func:`neurecover.recover`. Without weights every row is an observation;
            with weights rows that repeat others are one, with the sum of their weights.

        Returns
        -------
        self : object
            The fitted regressor.
        """
        check_frame(X, y)
        target = getattr(y, "name", None)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=True,
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=_FEWEST,
        )
        X, y = as_dense(X), as_dense(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        names = ("n_hidden", "method", "activation", "bias", "affine", "depth", "time_budget", "random_state", "loss")
        options = {name: getattr(self, name) for name in names}
        source = as_source(X, y)
        source.input_names = tuple(map(str, getattr(self, "feature_names_in_", source.input_names)))
        if target is not None and source.n_outputs == 1:
            source.output_names = (str(target),)
        self.recovery_ = recover(source, **options, sample_weight=sample_weight)
        self.network_, self.certificate_ = self.recovery_.network, self.recovery_.certificate
        if self.certificate_.verdict == "failed":
            warnings.warn(f"The verdict is failed. {self.certificate_.reasons[0]}", NotRecoveredWarning, stacklevel=2)
        layers = self.network_.layers
        self.coefs_ = [W.T.copy() for W, _ in layers]
        self.intercepts_ = [b.copy() for _, b in layers]
        self.affine_coef_ = None if self.network_.C is None else self.network_.C.T.copy()
        self.n_outputs_ = self.network_.n_outputs
        self._flat = y.ndim == 1
        self._errors = None
        if self.certificate_.verdict in ("exact", "statistical"):
            Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
            self._errors = PredictionErrors.of(self.network_, np.asarray(X, dtype=np.float64), Y, sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict with the network.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The inputs; sparse ones are written out.

        return_std : bool, default=False
            Whether to give the standard errors of the predictions beside them. They come from the errors of the
            weights, without the noise of a further sample. They are infinite if the verdict is below statistical,
            because the errors of the weights are not known then.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The predictions.

        std : ndarray of the same shape
            Their standard errors, with `return_std=True` alone.
        """
        check_is_fitted(self)
        X = as_dense(validate_data(self, X, accept_sparse=True, dtype=np.float64, reset=False))
        Y = self.network_(X)
        if not return_std:
            return Y[:, 0] if self._flat else Y
        errors = np.full_like(Y, np.inf) if self._errors is None else self._errors(X)
        return (Y[:, 0], errors[:, 0]) if self._flat else (Y, errors)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
