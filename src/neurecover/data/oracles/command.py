"""A model behind a command: rows of inputs on its standard input, rows of outputs on its standard output."""

from __future__ import annotations

import shlex
import subprocess

import numpy as np


class CommandModel:
    """`model(X)` runs the command once for all rows of X; numbers are separated by blanks or commas, rows by lines.

    Inputs are written with all digits of double precision; outputs have the digits that the command prints.
    """

    def __init__(self, command: str, timeout: float = 300.0) -> None:
        self._command, self._words = command, shlex.split(command)
        if not self._words:
            raise ValueError("A command needs at least the name of a program. Got an empty text instead.")
        self._timeout = timeout

    def __call__(self, X: np.ndarray) -> np.ndarray:
        text = "".join(" ".join(repr(float(value)) for value in row) + "\n" for row in X)
        try:
            done = subprocess.run(self._words, input=text, capture_output=True, text=True, timeout=self._timeout)
        except FileNotFoundError:
            raise ValueError(f"There is no program {self._words[0]!r} to be run.") from None
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self._command!r} did not answer {len(X)} rows in {self._timeout:g} s.") from None
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
            raise OSError(
                f"{self._command!r} ended with status {done.returncode} on rows of {X.shape[1]} numbers: {said}"
            )
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        expected = f"{self._command!r}: expected {len(X)} lines of numbers, one per row of inputs"
        try:
            rows = [[float(word) for word in line.replace(",", " ").split()] for line in lines]
        except ValueError as error:
            raise ValueError(f"{expected}. {str(error).capitalize()}.") from None
        if len(rows) != len(X) or len({len(row) for row in rows}) != 1:
            raise ValueError(f"{expected}, all of the same length. Got {len(rows)} lines instead.")
        return np.array(rows)
