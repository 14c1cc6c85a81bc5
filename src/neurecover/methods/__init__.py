"""The published algorithms, one file each, and their registry."""

from neurecover.methods import (
    arbitrary_noise,
    exact_from,
    exact_ica,
    exact_tensor,
    hermite,
    least_squares,
    noisy_tensor,
    one_sparse,
    sign_patterns,
    sparse_noise,
    symmetric,
)
from neurecover.methods.registry import Estimate, Method

_ROOMS = (
    least_squares,
    hermite,
    symmetric,
    exact_tensor,
    exact_ica,
    exact_from,
    noisy_tensor,
    sign_patterns,
    one_sparse,
    arbitrary_noise,
    sparse_noise,
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
