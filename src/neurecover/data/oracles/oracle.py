"""A model that is queried: we draw x, and y = model(x) is its answer.

Row i belongs to chunk j = ⌊i / 4096⌋. A whole chunk j is drawn from the j-th child of one seed and
sent to the model in one call, so row i is the same for every block size and every n_samples.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurecover.data.oracles.answers import SavedAnswers
from neurecover.data.oracles.calls import Calls
from neurecover.data.oracles.frame import Frame
from neurecover.data.oracles.libraries import as_function, logits
from neurecover.data.source import Blocks, Source, WeightedBlocks, check_real, numbered
from neurecover.exceptions import RefusedError, UnsolvableError
from neurecover.random import RandomStateLike, as_generator

CHUNK = 4096  # rows drawn and asked at a time; another value would change the rows that belong to a seed

Distribution = Callable[[np.random.Generator, int, int], np.ndarray]


class Oracle(Source):
    """Rows (x, model(x)): a source whose outputs come from queries to a model; `extract` chooses its own queries.

    Every pass queries the model again. If the model's answers to a query vary, so do the passes.

    Parameters
    ----------
    model : callable, scikit-learn estimator or pipeline, torch.nn.Module, onnxruntime session or path of an .onnx file
        A function X → Y, or an object that has one. A torch module is queried in its own precision, in eval mode and
        without gradients.
    n_inputs : int or None, default=None
        The number of inputs; None if the model tells it.
    output : {None, "logit"}, default=None
        None for the answers as they come; "logit" for the logits of a model that answers with probabilities:
        log p/(1 − p), or log p_j/p_1 of several classes. A scikit-learn classifier is always queried for its logits.
    like : array_like of shape (n, d) or None, default=None
        Samples that queries should resemble in mean and covariance. By default, a pipeline that begins with a scaler is
        queried around the scaler's data, and any other model around zero with unit variance.
    bounds : tuple (low, high) or None, default=None
        The range that no query leaves; low and high are one number each, or one number per input.
    n_samples : int or None, default=None
        The number of rows, for `recover`.
    distribution : callable or None, default=None
        distribution(rng, n, d) → (n, d) draws the rows, in place of the Gaussian.
    batch : int or None, default=None
        The number of rows per call of the model.
    keep : path or None, default=None
        A file that saves the answers: no query is made twice, in this run or a later one.
    retries : int, default=2
        How often a query is repeated after a failure that may be temporary (OSError, TimeoutError).
    in_flight : int, default=1
        The number of calls at the same time, for a model that may be called from several threads.
    queries_per_second : float or None, default=None
        The largest number of rows asked per second.
    max_queries, max_seconds : int, float or None, default=None
        The largest number of queries, of all runs together, and the largest time of a run.
    random_state : int, Generator, RandomState or None, default=None
        The seed of the rows.

    Examples
    --------
    >>> import neurecover as nr
    >>> model = nr.simulate.teacher(5, 3, random_state=0)
    >>> r = nr.extract(nr.oracle(model, n_inputs=5), random_state=0)
    >>> r.certificate.verdict, r.n_queries < 1000
    ('exact', True)
    """

    def __init__(
        self,
        model: Any,
        n_inputs: int | None = None,
        *,
        output: str | None = None,
        like: Any = None,
        bounds: tuple[Any, Any] | None = None,
        n_samples: int | None = None,
        distribution: Distribution | None = None,
        batch: int | None = None,
        keep: str | Path | None = None,
        retries: int = 2,
        in_flight: int = 1,
        queries_per_second: float | None = None,
        max_queries: int | None = None,
        max_seconds: float | None = None,
        random_state: RandomStateLike = None,
    ) -> None:
        way = as_function(model, output)
        if max_seconds is not None and not max_seconds >= 0.0:
            raise ValueError(f"max_seconds needs a number of seconds from 0. Got {max_seconds!r} instead.")
        self.frame = way.frame if like is None else Frame.like(like)
        d = _width(n_inputs, way.n_inputs, None if self.frame is None else len(self.frame.mean))
        self.origin = "the oracle"
        self.without_a_value = "keep to inputs that the model can answer, with bounds=(low, high)"
        self.single, self.max_seconds, self.logits = way.single, max_seconds, way.logits
        self.calls = Calls(
            way.ask, batch=batch, in_flight=in_flight, per_second=queries_per_second, most=max_queries, retries=retries
        )
        self.saved = None if keep is None else SavedAnswers(self.calls, d, keep)
        self.bounds = None if bounds is None else _checked_bounds(bounds, d)
        self._distribution = distribution or self._drawn
        self._entropy = int(as_generator(random_state, "oracle").integers(2**63))
        self.n_samples = _sample_count(n_samples)
        self.input_names = numbered("x", d)
        probe = self._inputs(0)[:2]
        answer = self._first_answer(probe)
        self.output_names = numbered("y", answer.shape[1])
        self._check_finite(probe, answer, 0)

    @property
    def queries(self) -> int:
        """The number of queries so far, of this oracle and of all oracles that `with_samples` derived from it."""
        return self.calls.answered

    def ask(self, X: ArrayLike) -> np.ndarray:
        """Return the model's answers (n, p) to the queries X (n, d)."""
        X = np.asarray(X, dtype=np.float64)
        if self.bounds is not None and not np.all((self.bounds[0] <= X) & (self.bounds[1] >= X)):
            raise RefusedError(
                "A query would leave the bounds of the model. Use samples within them instead: recover(oracle, "
                "n_samples=...)."
            )
        return self._answer(X)

    def ask_as_it_is(self, X: np.ndarray) -> np.ndarray:
        """Return the model's raw answers: probabilities if `ask` returns logits."""
        return self.calls(X) if self.saved is None else self.saved(X)

    def draw(self, n: int) -> np.ndarray:
        """Draw the inputs of the first n rows, up to 4096, without querying the model."""
        return self._inputs(0)[:n]

    def with_samples(self, n: int) -> "Oracle":
        """Return the same oracle, seed included, limited to its first n rows."""
        limited = copy.copy(self)
        limited.n_samples = _sample_count(n)
        return limited

    def weighted_blocks(self, rows: int) -> WeightedBlocks:
        if self.n_samples is None:
            raise ValueError("An oracle has no end. Give the number of queries as n_samples, or call .with_samples(n).")
        return super().weighted_blocks(rows)

    def _blocks(self, rows: int) -> Blocks:
        n = self.n_samples or 0
        for j, first in enumerate(range(0, n, CHUNK)):
            X = self._inputs(j)[: n - first]
            Y = self._answer(X)
            if Y.shape[1] != self.n_outputs:
                raise ValueError(
                    f"The model answered {self.n_outputs} outputs at first. Got {Y.shape[1]} for a later query instead."
                )
            for start in range(0, len(X), rows):
                yield X[start : start + rows], Y[start : start + rows]

    def _inputs(self, chunk: int) -> np.ndarray:
        # The child number `chunk` of SeedSequence(entropy).spawn, without creating the others.
        seed = np.random.SeedSequence(self._entropy, spawn_key=(chunk,))
        X = np.asarray(self._distribution(np.random.default_rng(seed), CHUNK, self.n_inputs))
        check_real(X.dtype, "the distribution")
        if X.shape != (CHUNK, self.n_inputs):
            raise ValueError(
                f"The distribution was asked for shape {(CHUNK, self.n_inputs)}. Got shape {X.shape} instead."
            )
        # Record the inputs as the model sees them.
        return X.astype(np.float32).astype(np.float64) if self.single else X

    def _drawn(self, rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        """Draw Gaussian inputs in the frame, reflected into the bounds; uniform inputs if there are bounds alone."""
        if self.bounds is None:
            Z = rng.standard_normal((n, d))
            return Z if self.frame is None else self.frame.inputs(Z)
        low, high = self.bounds
        if self.frame is None:
            return rng.uniform(low, high, (n, d))
        beyond = (self.frame.inputs(rng.standard_normal((n, d))) - low) % (2.0 * (high - low))
        return low + np.minimum(beyond, 2.0 * (high - low) - beyond)

    def _first_answer(self, X: np.ndarray) -> np.ndarray:
        """Return the answers to X; probabilities of 0 and 1 are moved into (0, 1), so that their logits are finite."""
        Y = self.ask_as_it_is(X)
        if not self.logits:
            return Y
        try:
            return logits(np.where(Y == 0.0, 1e-300, np.where(Y == 1.0, 1.0 - 2.0**-53, Y)))
        except UnsolvableError as error:
            raise RefusedError(str(error)) from error

    def _answer(self, X: np.ndarray) -> np.ndarray:
        Y = self.ask_as_it_is(X)
        try:
            return logits(Y) if self.logits else Y
        except UnsolvableError as error:
            raise RefusedError(str(error)) from error


# The public name, in lower case like `nr.open`: `nr.oracle(model)`.
oracle = Oracle


def _width(told: int | None, known: int | None, around: int | None) -> int:
    """Return the number of inputs, from the caller, the model or the samples; raise if these disagree."""
    if told is not None and not isinstance(told, int | np.integer):
        raise ValueError(f"n_inputs needs a whole number. Got {told!r} instead.")
    widths = {width for width in (told, known, around) if width is not None}
    if not widths:
        raise ValueError("The model does not tell how many inputs it takes. Give n_inputs, or samples as like=X.")
    if len(widths) > 1:
        taken = f"The model takes {known} inputs" if known is not None else f"n_inputs is {told}"
        other = f"n_inputs={told}" if known is not None and told not in (None, known) else f"{around} columns of like"
        raise ValueError(f"{taken}. Got {other} instead; leave it out or correct it.")
    d = widths.pop()
    if d < 1:
        raise ValueError(f"An oracle takes at least one input. Got n_inputs={d} instead.")
    return d


def _checked_bounds(bounds: tuple[Any, Any], d: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (d,)) for side in bounds)
    except (TypeError, ValueError):
        raise ValueError(f"bounds needs to be (low, high), numbers or {d} of them each. Got {bounds!r}.") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise ValueError(f"bounds needs finite numbers with low < high. Got {bounds!r} instead.")
    return low, high


def _sample_count(n: int | None) -> int | None:
    if n is not None and n < 1:
        raise ValueError(f"An oracle is asked at least one row. Got n_samples={n} instead.")
    return n
