"""Small problems that invite a false claim, by name.

A certificate is as good as what it says of data that it was not made for. Every family here has something that fits
well and is wrong: units that no sample shows, signs that nothing determines, errors that are no noise, rows that are no
independent samples, functions that are no network. `draw` gives one problem of a family, and the truth behind it.
"""

from __future__ import annotations

from benchmarks.hostile import functions, inputs, outputs, units
from benchmarks.hostile.case import Family, Hostile
from neurecover.random import RandomStateLike, as_generator

__all__ = ["Family", "Hostile", "draw", "families"]


def families() -> dict[str, Family]:
    """Return every family by name: a function of a Generator, whose docstring says what is wrong."""
    modules = (units, inputs, outputs, functions)
    return {family.__name__: family for module in modules for family in module.FAMILIES}


def draw(name: str, random_state: RandomStateLike = None) -> Hostile:
    """Draw a problem of the family of that name."""
    known = families()
    if name not in known:
        raise ValueError(f"A hostile family is one of {', '.join(known)}. Got {name!r} instead.")
    return known[name](as_generator(random_state, f"simulate.hostile.{name}"))
