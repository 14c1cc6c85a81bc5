"""The values that checks use for samples and for queries alike, and the table of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from neurecover.certificate.verdict import Check, passed

if TYPE_CHECKING:
    from neurecover.certificate.case import Case
    from neurecover.certificate.from_queries import RoundedCase

# Values available for both samples and queries, as fields or properties of the case.
Facts: TypeAlias = "Case | RoundedCase"


@dataclass(frozen=True)
class Row:
    """A check in a table. It is made if all checks in `after` have passed and not all of those in `unless` have.

    `noise` restricts it to residuals above rounding (True) or at rounding (False).
    """

    check: Callable[[Any], Check | None]
    after: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    noise: bool | None = None

    def applies(self, made: Iterable[Check], noisy: bool) -> bool:
        """Return whether the check is to be made."""
        made = tuple(made)
        if self.noise not in (None, noisy) or not passed(made, self.after):
            return False
        return not self.unless or not passed(made, self.unless)


def run_checks(table: tuple[Row, ...], case: Any, noisy: bool = False) -> tuple[Check, ...]:
    """Return the checks of a table that apply to a case, in order; a check that passed loses its remedy."""
    made: list[Check] = []
    for row in table:
        if row.applies(made, noisy) and (check := row.check(case)) is not None:
            made.append(replace(check, remedy="") if check.passed else check)
    return tuple(made)


def would_do(n_wanted: float) -> str:
    """Return a sentence with the number of samples that would suffice, to two digits; empty beyond 1e9."""
    if not np.isfinite(n_wanted) or n_wanted > 1e9:
        return ""
    return f" About {rounded_up(n_wanted):,} samples would do."


def rounded_up(n: float) -> int:
    """Return a number rounded up to two digits."""
    unit = 10.0 ** max(np.floor(np.log10(max(n, 1.0))) - 1.0, 0.0)
    return int(np.ceil(n / unit) * unit)
