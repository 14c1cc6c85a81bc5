"""The published algorithms, a folder per paper, and their registry."""

from neurecover.algorithms import least_squares
from neurecover.algorithms.atv21 import learner as hermite
from neurecover.algorithms.base import Algorithm, Call
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
from neurecover.algorithms.gklw19 import learner as symmetric
from neurecover.algorithms.gp18 import by_landscape, cliques, even, exponential, lowest_layer, rejection, steep

_ROOMS = (
    least_squares,
    hermite,
    symmetric,
    tensor,
    ica,
    from_symmetric,
    projection,
    enumeration,
    parallel,
    guesses,
    corruption,
    lowest_layer,
    by_landscape,
    steep,
    cliques,
    exponential,
    even,
    rejection,
)
_REGISTRY = {room.ALGORITHM.name: room.ALGORITHM for room in _ROOMS}

__all__ = ["Algorithm", "Call", "get_method", "methods"]


def methods() -> tuple[Algorithm, ...]:
    """Every method: its name, its paper and what it assumes."""
    return tuple(_REGISTRY.values())


def get_method(name: str) -> Algorithm:
    """The method of that name."""
    if name not in _REGISTRY:
        raise ValueError(f"method needs to be 'auto' or one of {', '.join(_REGISTRY)}. Got {name!r} instead.")
    return _REGISTRY[name]
