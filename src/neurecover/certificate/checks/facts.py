"""What the checks look at that samples and queries both show, and the table that checks stand in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from neurecover.certificate.verdict import Check, passed

if TYPE_CHECKING:
    from neurecover.certificate.case import Case
    from neurecover.certificate.from_queries import RoundedCase

# What samples and queries both show: each is a field of the case or computed when it is first asked for.
Facts: TypeAlias = "Case | RoundedCase"


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
