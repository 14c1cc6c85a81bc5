"""The certificate: checks, and the verdict, which follows from the checks alone.

    exact         the held-out residual is at the level of rounding, and the samples determine every weight
    statistical   the residual is noise as far as a test can tell, and every weight has a standard error
    approximate   the network predicts better than the mean and a straight line, but its weights may be wrong
    failed        anything else

A verdict requires that all of its checks were made and passed: a check that was not made counts as failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

VERDICTS = ("exact", "statistical", "approximate", "failed")
MEANING = {
    "exact": "every weight is right to the last digits of double precision",
    "statistical": "every weight has a standard error that holds",
    "approximate": "use it to predict; not every weight is shown to be right",
    "failed": "rely on nothing here; below is why, and what to try",
}
STRAIGHT = "the outputs show no hidden unit; what is left is a straight line or a constant"

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
        "majority",
        "generalisation",
        "structure",
        "shape",
        "corners",
        "strength",
        "spare unit",
        "precision",
    ),
    "approximate": ("prediction",),
}
# Broken lines of one input (`hinges`) are fitted to all rows, and judged by tests against other shapes.
NEEDS_OF_SEGMENTS = {
    "exact": ("segments", "rounding", "rows", "hinges", "outliers"),
    "statistical": ("segments", "rows", "hinges", "further hinges", "limits", "neighbours", "shape", "outliers"),
    "approximate": ("prediction",),
}
NEEDS_OF_COUNTS = NEEDS_OF_SEGMENTS | {"statistical": (*NEEDS_OF_SEGMENTS["statistical"], "dispersion", "bounds")}
# Checks that are among the reasons even if they passed.
ALWAYS_SAID = (
    "segments",
    "straight line",
    "outliers",
    "dispersion",
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
    """One check of a certificate: a figure, its limit, and what the comparison means.

    Attributes
    ----------
    name : str
        Its name, one word or two.
    passed : bool
        Whether the limit was met.
    figure, limit : float or None
        The measured value and its bound; None if the check is a plain fact.
    sentence : str
        The result in words.
    remedy : str
        What to do if the check failed and more samples would not help.
    n_wanted : float
        The number of samples that would have met the limit, 0 if more samples would not help.

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
    """One value per weight of a network, as arrays named as in its file: W, b, A, c; or W1, b1, W2, …

    Arrays are items or attributes, with the shapes of the network's own arrays in normal form.
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
    """The likelihood of a network under noise: Σr² over N equations, and the number of free parameters.

    Under Gaussian noise of equal variance −2 log L = N (log(2π Σr²/N) + 1); the variance counts as a parameter too.
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
        How far the network can be trusted; see the page on the certificate.
    reasons : tuple of str
        The reasons for the verdict, the most important first.
    checks : tuple of Check
        All checks that were made.
    holdout_mse : float
        The mean squared error on held-out samples; nan if none were held out.
    noise_variance : float or None
        The variance of the noise, its mean over the outputs; None if the residual is not shown to be noise.
    n_samples, n_holdout : int
        The number of samples, and of held-out samples.
    standard_errors : object with the arrays W, b, A, c or None
        For the verdicts exact and statistical; infinite for weights that are not determined.
    covariance_root : ndarray or None
        R of the covariance R Rᵀ of all weights, if the verdict is statistical and the weights are not too many.
    likelihood : Likelihood or None
        The likelihood, if the residual was tested as noise.
    noise_variances : ndarray of shape (p,) or None
        The variance of the noise of every output, if it was measured for each.
    freedom : object with the arrays W, b, A, c or None
        The degrees of freedom of the standard errors. ±1.96 errors are 95 % intervals whatever they are; at other
        levels few of them make an interval wider than a normal one.

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
    noise_variances: np.ndarray | None = field(default=None, repr=False)
    freedom: ParameterArrays | None = field(default=None, repr=False)

    @property
    def determined(self) -> ParameterArrays | None:
        """A mask per array of the network, True if the samples determine the weight; None if that is not known.

        All weights are determined if the verdict is exact or statistical. If the residual is rounding and some weights
        are not determined, the others are exact; the determined weights of every row then have norm one.
        """
        if self.standard_errors is None:
            return None
        return ParameterArrays({name: np.isfinite(error) for name, error in self.standard_errors.items()})

    @property
    def verdict(self) -> str:
        return verdict_of(self.checks)

    @property
    def meaning(self) -> str:
        """What the verdict means for the reader, in a phrase."""
        # A straight line that suffices, or units that were not found.
        bare = {("straight line", True), ("units", False)} & {(check.name, check.passed) for check in self.checks}
        return STRAIGHT if bare and self.verdict == "approximate" else MEANING[self.verdict]

    @property
    def identifiable(self) -> bool:
        """Whether the samples determine every weight, with or without noise."""
        return passed(self.checks, [name for name in needs_of(self.checks)["statistical"] if name in IDENTIFIABLE])

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the checks that decided, then of those that are always given."""
        return reasons_of(self.checks)

    def __str__(self) -> str:
        """Return the verdict and its reasons, one per line."""
        return "\n".join((self.verdict, *self.reasons))

    def _repr_html_(self) -> str | None:
        from neurecover.report import in_notebook

        return in_notebook("certificate", self)


def passed(checks: Iterable[Check], names: Iterable[str]) -> bool:
    """Return whether all named checks were made, and every check of these names passed."""
    made = {name: [check.passed for check in checks if check.name == name] for name in names}
    return all(results and all(results) for results in made.values())


def needs_of(checks: tuple[Check, ...]) -> dict[str, tuple[str, ...]]:
    """Return the checks that each verdict needs; those for labels and broken lines differ from those for outputs."""
    names = {check.name for check in checks}
    if "segments" in names:
        return NEEDS_OF_COUNTS if "dispersion" in names else NEEDS_OF_SEGMENTS
    return NEEDS_OF_LABELS if "labels" in names else NEEDS


def verdict_of(checks: tuple[Check, ...]) -> str:
    """Return the best verdict all of whose checks were made and passed."""
    return next((verdict for verdict, names in needs_of(checks).items() if passed(checks, names)), "failed")


def reasons_of(checks: tuple[Check, ...]) -> tuple[str, ...]:
    """Return the sentences of checks that prevented a better verdict, then those always given, then all others."""
    verdict = verdict_of(checks)
    wanted = {name for names in needs_of(checks).values() for name in names} | {"time"}
    against = [] if verdict in ("exact", "statistical") else [c for c in checks if not c.passed and c.name in wanted]
    # Outputs with all digits need no sentence.
    plain = [c for c in checks if c.name == "output digits" and c.figure is None]
    said = [c for c in checks if c not in against and c not in plain and c.name in ALWAYS_SAID]
    besides = [c for c in checks if c.name not in wanted and c.name not in ALWAYS_SAID]
    # The least important reasons come last: an affine part and a poor prediction follow from other faults, and with
    # noise the distance of the residual from rounding does not matter.
    last = ("affine part", "prediction", "rounding")
    against.sort(key=lambda check: last.index(check.name) + 1 if check.name in last else 0)
    # Advice comes before the reasons, and so do rows that may have caused them all.
    advising = ("straight line", "activation", "box", "probabilities")
    advice = [c for c in (*besides, *said) if c.name in advising or (c.name == "outliers" and not c.passed)]
    advice = advice if against else []
    return tuple(dict.fromkeys(check.sentence for check in (*advice, *against, *said, *besides)))
