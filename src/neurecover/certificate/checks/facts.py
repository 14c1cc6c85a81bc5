"""What the checks look at that samples and queries both show, and the table that checks stand in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from neurecover.certificate.evidence import Evidence, LeftOut
from neurecover.certificate.options import CertificateOptions
from neurecover.certificate.signs.rivals import SignChoices
from neurecover.certificate.verdict import Check, passed
from neurecover.statistics import Residuals


class Facts(Protocol):
    """Each of these is a field of a case or computed when it is first asked for; `case.Case` describes them."""

    @property
    def options(self) -> CertificateOptions: ...
    @property
    def evidence(self) -> Evidence: ...
    @property
    def holdout(self) -> Residuals: ...
    @property
    def rounding(self) -> np.ndarray: ...
    @property
    def noisy(self) -> bool: ...
    @property
    def n_units(self) -> int: ...
    @property
    def n_hidden(self) -> int | tuple[int, ...]: ...
    @property
    def n_inputs(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def affine_term(self) -> str | None: ...
    @property
    def activation(self) -> str: ...
    @property
    def differentiable(self) -> bool: ...
    @property
    def n_samples(self) -> int: ...
    @property
    def n_equations(self) -> int: ...
    @property
    def n_free(self) -> int: ...
    @property
    def sign_choices(self) -> SignChoices: ...
    @property
    def largest_error(self) -> float: ...
    @property
    def widest(self) -> float: ...
    @property
    def strength(self) -> np.ndarray: ...
    @property
    def carried_by(self) -> float: ...
    @property
    def left_out(self) -> LeftOut: ...
    @property
    def p_structure(self) -> float: ...
    @property
    def serial_z(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Row:
    """A check in a table: made where the checks named in `after` have passed, and one of `unless`, if any, has not.

    `noise` restricts it to residuals above rounding (True) or at rounding (False).
    """

    check: Callable[[Any], Check | None]
    after: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    noise: bool | None = None

    def applies(self, made: Iterable[Check], noisy: bool) -> bool:
        """Return whether the check has something to stand on."""
        made = tuple(made)
        if self.noise not in (None, noisy) or not passed(made, self.after):
            return False
        return not self.unless or not passed(made, self.unless)


def run_checks(table: tuple[Row, ...], case: Any, noisy: bool = False) -> tuple[Check, ...]:
    """Return the checks of a table that apply to a case, in their order; what has passed needs no remedy."""
    made: list[Check] = []
    for row in table:
        if row.applies(made, noisy) and (check := row.check(case)) is not None:
            made.append(replace(check, remedy="") if check.passed else check)
    return tuple(made)


def would_do(n_wanted: float) -> str:
    """Return a sentence on about how many samples would do, rounded up to two digits; nothing beyond 1e9."""
    if not np.isfinite(n_wanted) or n_wanted > 1e9:
        return ""
    return f" About {rounded_up(n_wanted):,} samples would do."


def rounded_up(n: float) -> int:
    """Return a number rounded up to two digits."""
    unit = 10.0 ** max(np.floor(np.log10(max(n, 1.0))) - 1.0, 0.0)
    return int(np.ceil(n / unit) * unit)
