"""What is raised that is not about bad input, and a hint for what is."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class UnsolvableError(ValueError):
    """An algorithm cannot solve the data it was given; the message is the reason, as a sentence.

    It is caught where algorithms are called, and nothing else is: data that cannot be solved becomes a verdict, a
    defect stays visible. `reached` is what was found all the same, if an algorithm says so.
    """

    reached: object = None


class RefusedError(UnsolvableError):
    """An oracle does not answer a query, and another way of making it does not help."""


class OutOfTimeError(UnsolvableError):
    """The time limit passed during a pass over the samples or before a factorisation."""


@contextmanager
def breakdown(what: str) -> Iterator[None]:
    """Turn the breakdown of a factorisation inside into an `UnsolvableError`; also a decorator."""
    from numpy.linalg import LinAlgError  # imported here, so that `--help` does not wait for NumPy

    try:
        yield
    except LinAlgError as error:
        raise UnsolvableError(f"{what} broke down numerically ({error}).") from None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean …?" for the end of an error message; empty if no known word is similar."""
    words = list(known)
    near = get_close_matches(word, words, n=1, cutoff=0.6) or [one for one in words if len(word) > 2 and word in one]
    return f" Did you mean {near[0]!r}?" if near else ""


class NotRecoveredWarning(UserWarning):
    """The verdict is failed: what was fitted predicts no better than the mean or a straight line."""
