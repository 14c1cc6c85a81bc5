"""A black box that is queried: x is drawn by us, y = model(x) is its answer.

Row i belongs to chunk j = ⌊i / 4096⌋. Chunk j is drawn whole from the j-th child of one seed and
put to the model in one call, so row i is the same for every block size and every n_samples.
"""

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neurecover.data.answers import KeptAnswers
from neurecover.data.source import Blocks, Source, check_real, numbered
from neurecover.random import RandomStateLike, as_generator

CHUNK = 4096
PAUSE = 0.5  # seconds before a failed question is put again

Distribution = Callable[[np.random.Generator, int, int], np.ndarray]


class Oracle(Source):
    """Rows (x, model(x)) with x standard Gaussian, or drawn by distribution(rng, n, d) -> (n, d).

    Every pass asks the model again, so a model that answers the same question differently gives
    passes that differ.
    """

    def __init__(
        self,
        model: Any,
        n_inputs: int,
        *,
        n_samples: int | None = None,
        distribution: Distribution | None = None,
        batch: int | None = None,
        keep: str | Path | None = None,
        retries: int = 2,
        random_state: RandomStateLike = None,
    ) -> None:
        if batch is not None and batch < 1:
            raise ValueError(f"A batch holds at least one row. Got batch={batch} instead.")
        if n_inputs < 1:
            raise ValueError(f"An oracle takes at least one input. Got n_inputs={n_inputs} instead.")
        self.origin = "the oracle"
        self._model, self._retries = _callable(model), retries
        self._kept = None if keep is None else KeptAnswers(self._put, n_inputs, keep)
        self._distribution = distribution or _gaussian
        self._entropy = int(as_generator(random_state, "oracle").integers(2**63))
        self._asked = [0]
        self.batch = batch
        self.n_samples = _sample_count(n_samples)
        self.input_names = numbered("x", n_inputs)
        probe = self._inputs(0)[:2]
        answer = self._answer(probe)
        self.output_names = numbered("y", answer.shape[1])
        self._check_finite(probe, self.input_names, 0)
        self._check_finite(answer, self.output_names, 0)

    @property
    def queries(self) -> int:
        """Rows put to the model so far, by this oracle and by all that `with_samples` made of it."""
        return self._asked[0]

    def ask(self, X: np.ndarray) -> np.ndarray:
        """The model's answers (n, p) to chosen questions X (n, d)."""
        return self._answer(np.asarray(X, dtype=np.float64))

    def with_samples(self, n: int) -> "Oracle":
        """The same oracle, seed included, limited to its first n rows."""
        limited = copy.copy(self)
        limited.n_samples = _sample_count(n)
        return limited

    def blocks(self, rows: int) -> Blocks:
        if self.n_samples is None:
            raise ValueError(
                "An oracle can be asked without end. Give the number of queries as n_samples, or call .with_samples(n)."
            )
        return super().blocks(rows)

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
        # The child that SeedSequence(entropy).spawn would give as number `chunk`, without its siblings.
        seed = np.random.SeedSequence(self._entropy, spawn_key=(chunk,))
        X = np.asarray(self._distribution(np.random.default_rng(seed), CHUNK, self.n_inputs))
        check_real(X.dtype, "the distribution")
        if X.shape != (CHUNK, self.n_inputs):
            raise ValueError(
                f"The distribution was asked for shape {(CHUNK, self.n_inputs)}. Got shape {X.shape} instead."
            )
        return X

    def _answer(self, X: np.ndarray) -> np.ndarray:
        if self.batch is not None and len(X) > self.batch:
            return np.concatenate([self._answer(X[i : i + self.batch]) for i in range(0, len(X), self.batch)])
        return self._put(X) if self._kept is None else self._kept(X)

    def _put(self, X: np.ndarray) -> np.ndarray:
        """Put the rows to the model itself, again after a failure that may pass."""
        for left in range(self._retries, -1, -1):
            try:
                # The model receives its own copy: one that works in place must not change the inputs on record.
                Y = np.asarray(self._model(X.copy()))
                break
            except (OSError, TimeoutError):
                if left == 0:
                    raise
                time.sleep(PAUSE)
        self._asked[0] += len(X)
        check_real(Y.dtype, "the model's answer")
        if Y.ndim not in (1, 2) or len(Y) != len(X) or Y.shape[1:] == (0,):
            raise ValueError(
                f"The model was asked {len(X)} rows, to be answered with shape ({len(X)},) or ({len(X)}, p). "
                f"Got shape {Y.shape} instead."
            )
        return Y.reshape(len(X), -1)


def oracle(
    model: Any,
    n_inputs: int,
    *,
    n_samples: int | None = None,
    distribution: Distribution | None = None,
    batch: int | None = None,
    keep: str | Path | None = None,
    retries: int = 2,
    random_state: RandomStateLike = None,
) -> Oracle:
    """A source whose outputs are asked of `model`, a callable X -> Y or an object with `.predict`.

    The number of outputs is found by a first query of two rows. batch is how many rows are put to the model at once.
    keep is a file in which answers are kept: no question is put twice, in this run or in a later one. A failure that
    may pass (OSError, TimeoutError) is tried again, `retries` times.
    """
    return Oracle(
        model,
        n_inputs,
        n_samples=n_samples,
        distribution=distribution,
        batch=batch,
        keep=keep,
        retries=retries,
        random_state=random_state,
    )


def _gaussian(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def _callable(model: Any) -> Callable[[np.ndarray], Any]:
    ask = getattr(model, "predict", model)
    if not callable(ask):
        raise TypeError(f"The model is a callable X -> Y or has a method predict. Got {type(model).__name__} instead.")
    return ask


def _sample_count(n: int | None) -> int | None:
    if n is not None and n < 1:
        raise ValueError(f"An oracle is asked at least one row. Got n_samples={n} instead.")
    return n
