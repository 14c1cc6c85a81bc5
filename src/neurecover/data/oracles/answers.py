"""Answers of a model saved in a file, so that no query is made twice.

The file begins with a line of text that gives the number of inputs and outputs of a row. Then follow the rows (x, y) in
float64; the rows of a call are written as soon as it is answered. A run that was interrupted and is started again makes
the same queries, finds their answers here and continues where it stopped. A partly written last row is cut off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from neurecover.data.oracles.calls import Arrived

_MAGIC = "neurecover answers 1"


class SavedAnswers:
    """`saved(X)` returns the answers (n, p), from the file if it has them, else from `ask(X, arrived)`.

    `ask` passes the answers of each of its calls to `arrived`, which writes them.

    Every distinct query takes 8 (d + p) bytes of memory and an entry of a dictionary.
    """

    def __init__(self, ask: Callable[[np.ndarray, Arrived], np.ndarray], n_inputs: int, path: str | Path) -> None:
        self._ask, self._d, self._path = ask, n_inputs, Path(path)
        self._known: dict[bytes, np.ndarray] = {}
        self._p: int | None = None
        if self._path.exists():
            self._read()

    @property
    def path(self) -> Path:
        """The path of the file with the answers."""
        return self._path

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        X = np.ascontiguousarray(X, dtype=np.float64)
        keys = [row.tobytes() for row in X]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if new:
            self._ask(X[list(new.values())], self._write)
        return np.array([self._known[key] for key in keys])

    def _read(self) -> None:
        with self._path.open("rb") as file:
            head = file.readline(200).decode("ascii", errors="replace").rstrip("\n")
            words = head.removeprefix(_MAGIC).split()
            if not head.startswith(_MAGIC) or len(words) != 2 or not all(word.isdigit() for word in words):
                raise ValueError(f"{self._path}: expected a file of saved answers. Got another kind of file instead.")
            d, p = map(int, words)
            if d != self._d:
                raise ValueError(f"{self._path} keeps answers to {d} inputs. Got a model of {self._d} instead.")
            start, body = file.tell(), file.read()
        whole = len(body) // (8 * (d + p))
        rows = np.frombuffer(body[: 8 * whole * (d + p)], dtype="<f8").reshape(whole, d + p)
        self._p = p
        self._known = {row[:d].tobytes(): row[d:].copy() for row in rows}
        if 8 * whole * (d + p) != len(body):
            os.truncate(self._path, start + 8 * whole * (d + p))

    def _write(self, X: np.ndarray, Y: np.ndarray) -> None:
        Y = np.asarray(Y, dtype=np.float64).reshape(len(X), -1)
        if self._p is None:
            self._p = Y.shape[1]
            self._path.write_text(f"{_MAGIC} {self._d} {self._p}\n", encoding="ascii")
        elif self._p != Y.shape[1]:
            raise ValueError(f"{self._path} keeps {self._p} outputs per answer. Got {Y.shape[1]} instead.")
        with self._path.open("ab") as file:
            file.write(np.hstack([X, Y]).astype("<f8").tobytes())
        self._known.update((x.tobytes(), y) for x, y in zip(X, Y))
