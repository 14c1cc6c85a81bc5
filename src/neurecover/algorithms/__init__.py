"""The published algorithms, a folder per paper, and their registry."""

from neurecover.algorithms import least_squares
from neurecover.algorithms.atv21 import learner as atv21
from neurecover.algorithms.base import Estimate, Method
from neurecover.algorithms.bjw18 import (
    corruption,
    enumeration,
    from_symmetric,
    guesses,
    ica,
    parallel,
    projection,
    tensor,
)
from neurecover.algorithms.gklw19 import learner as gklw19

_ROOMS = (
    least_squares,
    atv21,
    gklw19,
    tensor,
    ica,
    from_symmetric,
    projection,
    enumeration,
    parallel,
    guesses,
    corruption,
)
_METHODS = {room.METHOD.name: room.METHOD for room in _ROOMS}

__all__ = ["Estimate", "Method", "get_method", "methods"]


def methods() -> tuple[Method, ...]:
    """Every method: its name, its paper and what it assumes."""
    return tuple(_METHODS.values())


def get_method(name: str) -> Method:
    """The method of that name."""
    if name not in _METHODS:
        raise ValueError(f"method needs to be 'auto' or one of {', '.join(_METHODS)}. Got {name!r} instead.")
    return _METHODS[name]
