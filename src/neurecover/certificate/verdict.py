"""What a certificate is: checks, and the verdict that follows from them and from nothing else.

    exact         the held-out residual is at the level of rounding, and the samples determine every weight
    statistical   the residual is noise as far as a test can tell, and every weight has a standard error
    approximate   it predicts better than the mean and a straight line, but its weights are not shown to be right
    failed        anything else

A verdict needs every one of its checks to have been made and passed: what was not checked counts against the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

VERDICTS = ("exact", "statistical", "approximate", "failed")

IDENTIFIABLE = (
    "units",
    "inputs",
    "width",
    "signs",
    "affine part",
    "derivative",
    "size",
    "equations",
    "information",
    "columns",
    "kinks",
)
NOISE = (
    "output digits",
    "signal",
    "tails",
    "load",
    "spare unit",
    "convergence",
    "agreement",
    "structure",
    "independence",
    "generalisation",
    "precision",
    "strength",
)
NEEDS = {
    "exact": ("rounding", *IDENTIFIABLE, "digits"),
    "statistical": (*IDENTIFIABLE, *NOISE),
    "approximate": ("prediction",),
}
# Halfspaces from labels (`from_labels`) have neither an information matrix nor a residual whose size could be noise.
NEEDS_OF_LABELS = {
    "statistical": (
        "labels",
        "inputs",
        "units",
        "signal",
        "generalisation",
        "structure",
        "shape",
        "strength",
        "spare unit",
        "precision",
    ),
    "approximate": ("prediction",),
}
# Broken lines of one input (`hinges`) are fitted to all rows, and judged by tests against other shapes.
NEEDS_OF_SEGMENTS = {
    "exact": ("segments", "rounding", "rows"),
    "statistical": ("segments", "rows", "hinges", "further hinges", "neighbours", "shape", "outliers"),
    "approximate": ("prediction",),
}
# Among the reasons even where they passed.
ALWAYS_SAID = (
    "segments",
    "straight line",
    "outliers",
    "rounding",
    "digits",
    "noise",
    "output digits",
    "open weights",
    "labels",
    "time",
)


@dataclass(frozen=True)
class Check:
    """One check of a certificate: what was measured, what it was compared with, and what that means.

    Attributes
    ----------
    name : str
        Its name, one word or two.
    passed : bool
        Whether the limit was met.
    figure, limit : float or None
        What was measured, and the bound; None where the check is a plain fact.
    sentence : str
        The result in words.
    remedy : str
        What to do where it failed and more samples are not what it takes.
    n_wanted : float
        How many samples would have met the limit, 0 where their number does not decide.

    Examples
    --------
    >>> from neurecover import Check
    >>> Check("units", True, 3, 1, "Hidden units were found.").passed
    True
    """

    name: str
    passed: bool
    figure: float | None
    limit: float | None
    sentence: str
    remedy: str = ""
    n_wanted: float = 0.0


class ParameterArrays(Mapping[str, np.ndarray]):
    """One array per array of a network, by the names of its file: W, b, A, c; or W1, b1, W2, …; as items or attributes.

    Each has the shape of the network's own, in normal form.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_") or name not in self._arrays:
            raise AttributeError(name)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"ParameterArrays({', '.join(f'{name} {array.shape}' for name, array in self.items())})"

    def largest(self, *names: str) -> float:
        """Return the largest entry of the named arrays, or of all."""
        return max((float(self[name].max(initial=0.0)) for name in names or self), default=0.0)


@dataclass(frozen=True)
class Likelihood:
    """What a network leaves of noisy samples: Σr² over N equations, with so many free parameters.

    Under Gaussian noise of one variance −2 log L = N (log(2π Σr²/N) + 1); the variance counts as a parameter too.
    """

    rss: float
    n_equations: int
    n_free: int

    @property
    def log_likelihood(self) -> float:
        """The largest log-likelihood."""
        N = self.n_equations
        return -0.5 * N * (float(np.log(2.0 * np.pi * max(self.rss, 1e-300) / N)) + 1.0)

    @property
    def aic(self) -> float:
        """−2 log L + 2 P [Akaike 1974]."""
        return -2.0 * self.log_likelihood + 2.0 * (self.n_free + 1)

    @property
    def bic(self) -> float:
        """−2 log L + P log N [Schwarz 1978]."""
        return -2.0 * self.log_likelihood + float(np.log(self.n_equations)) * (self.n_free + 1)


@dataclass(frozen=True)
class Certificate:
    """How far the weights can be trusted.

    The verdict and its reasons are functions of the checks and of nothing else.

    Attributes
    ----------
    verdict : {"exact", "statistical", "approximate", "failed"}
        What may be relied on; see the page on the certificate.
    reasons : tuple of str
        Why, the most important first.
    checks : tuple of Check
        Everything that was measured.
    holdout_mse : float
        The mean squared error on held-out samples; nan if none were held out.
    noise_variance : float or None
        None where the residual is not shown to be noise.
    n_samples, n_holdout : int
        How many samples there were, and how many of them were held out.
    standard_errors : object with the arrays W, b, A, c or None
        For the verdicts exact and statistical; infinite for weights that are not determined.
    covariance_root : ndarray or None
        R of the covariance R Rᵀ of all weights, for the verdict statistical and not too many weights.
    likelihood : Likelihood or None
        Where the residual was tested as noise.

    Examples
    --------
    >>> import neurecover as nr
    >>> truth = nr.simulate.teacher(3, 2, random_state=0)
    >>> r = nr.recover(*nr.simulate.sample(truth, 500, random_state=0), n_hidden=2, random_state=0)
    >>> r.certificate.verdict
    'exact'
    >>> next(check.passed for check in r.certificate.checks if check.name == "rounding")
    True
    """

    checks: tuple[Check, ...]
    holdout_mse: float
    noise_variance: float | None
    n_samples: int
    n_holdout: int
    standard_errors: ParameterArrays | None = field(default=None, repr=False)
    covariance_root: np.ndarray | None = field(default=None, repr=False)
    likelihood: Likelihood | None = field(default=None, repr=False)

    @property
    def determined(self) -> ParameterArrays | None:
        """A mask per array of the network, True where the samples determine the weight; None where that is not known.

        They determine all where the verdict is exact or statistical. Where the residual is rounding and some weights
        are open the others are exact, the rows of the network having unit norm over what is determined of them.
        """
        if self.standard_errors is None:
            return None
        return ParameterArrays({name: np.isfinite(error) for name, error in self.standard_errors.items()})

    @property
    def verdict(self) -> str:
        return verdict_of(self.checks)

    @property
    def identifiable(self) -> bool:
        """Whether the samples determine every weight, noise or not."""
        return passed(self.checks, [name for name in needs_of(self.checks)["statistical"] if name in IDENTIFIABLE])

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the checks that decided, then of those that are said in any case."""
        return reasons_of(self.checks)

    def __str__(self) -> str:
        """Return the verdict and its reasons, one per line."""
        return "\n".join((self.verdict, *self.reasons))

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("certificate", self)


def passed(checks: Iterable[Check], names: Iterable[str]) -> bool:
    """Return whether every named check was made and passed each time."""
    made = {name: [check.passed for check in checks if check.name == name] for name in names}
    return all(results and all(results) for results in made.values())


def needs_of(checks: tuple[Check, ...]) -> dict[str, tuple[str, ...]]:
    """Return the checks that each verdict needs; those for labels and broken lines differ from those for outputs."""
    names = {check.name for check in checks}
    if "segments" in names:
        return NEEDS_OF_SEGMENTS
    return NEEDS_OF_LABELS if "labels" in names else NEEDS


def verdict_of(checks: tuple[Check, ...]) -> str:
    """Return the best verdict all of whose checks were made and passed."""
    return next((verdict for verdict, names in needs_of(checks).items() if passed(checks, names)), "failed")


def reasons_of(checks: tuple[Check, ...]) -> tuple[str, ...]:
    """Return the sentences that prevented a better verdict, then those said in any case, then all others."""
    verdict = verdict_of(checks)
    wanted = {name for names in needs_of(checks).values() for name in names} | {"time"}
    against = [] if verdict in ("exact", "statistical") else [c for c in checks if not c.passed and c.name in wanted]
    # That outputs carry all digits goes without saying.
    plain = [c for c in checks if c.name == "output digits" and c.figure is None]
    said = [c for c in checks if c not in against and c not in plain and c.name in ALWAYS_SAID]
    besides = [c for c in checks if c.name not in wanted and c.name not in ALWAYS_SAID]
    # What comes last decides least: an affine rest and a poor prediction follow from whatever else went wrong, and how
    # far the residual is from rounding decides nothing where there is noise.
    last = ("affine part", "prediction", "rounding")
    against.sort(key=lambda check: last.index(check.name) + 1 if check.name in last else 0)
    # What to do comes before what stood in the way.
    advice = [
        c for c in (*besides, *said) if against and c.name in ("straight line", "activation", "box", "probabilities")
    ]
    return tuple(dict.fromkeys(check.sentence for check in (*advice, *against, *said, *besides)))
