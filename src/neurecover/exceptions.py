"""What is raised that is not about bad input."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


class UnsolvableError(ValueError):
    """An algorithm cannot solve the data it was given; the message is the reason, as a sentence.

    It is caught where algorithms are called, and nothing else is: data that cannot be solved becomes a verdict, a
    defect stays visible.
    """


class OutOfTimeError(UnsolvableError):
    """The time there was ended within a pass or before a factorisation."""


@contextmanager
def breakdown(what: str) -> Iterator[None]:
    """A factorisation that breaks down inside becomes an `UnsolvableError`; also a decorator."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise UnsolvableError(f"{what} broke down numerically ({error}).") from None
