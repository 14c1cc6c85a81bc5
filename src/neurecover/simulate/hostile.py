"""Small problems that invite a false claim, by name.

A certificate is as good as what it says of data that it was not made for. Every family here has something that fits
well and is wrong: units that no sample shows, signs that nothing determines, errors that are no noise, rows that are no
independent samples, functions that are no network. `draw` gives one problem of a family, and the truth behind it.
"""

from __future__ import annotations

from neurecover.random import RandomStateLike, as_generator
from neurecover.simulate import hostile_functions, hostile_inputs, hostile_outputs, hostile_units
from neurecover.simulate.hostile_case import Family, Hostile

__all__ = ["Family", "Hostile", "draw", "families"]


def families() -> dict[str, Family]:
    """Every family: a function of a Generator, with a docstring that says what is wrong."""
    modules = (hostile_units, hostile_inputs, hostile_outputs, hostile_functions)
    return {family.__name__: family for module in modules for family in module.FAMILIES}


def draw(name: str, random_state: RandomStateLike = None) -> Hostile:
    """A problem of the family of that name."""
    known = families()
    if name not in known:
        raise ValueError(f"A hostile family is one of {', '.join(known)}. Got {name!r} instead.")
    return known[name](as_generator(random_state, f"simulate.hostile.{name}"))
