"""The published algorithms, one file each, and their registry."""

from neurecover.methods import least_squares
from neurecover.methods.registry import Estimate, Method

_METHODS = {method.name: method for method in (least_squares.METHOD,)}

__all__ = ["Estimate", "Method", "get_method", "methods"]


def methods() -> tuple[Method, ...]:
    """Every method: its name, its paper and what it assumes."""
    return tuple(_METHODS.values())


def get_method(name: str) -> Method:
    """The method of that name."""
    if name not in _METHODS:
        raise ValueError(f"method needs to be 'auto' or one of {', '.join(_METHODS)}. Got {name!r} instead.")
    return _METHODS[name]
