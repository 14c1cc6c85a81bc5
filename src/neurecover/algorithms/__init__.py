"""The published algorithms, a folder per paper, and their registry, which loads a module when it is asked for."""

from importlib import import_module

from neurecover.algorithms.base import Algorithm, Call
from neurecover.exceptions import did_you_mean

_MODULES = {
    "least_squares": "least_squares",
    "hermite": "atv21.learner",
    "symmetric": "gklw19.learner",
    "exact_tensor": "bjw18.tensor",
    "exact_ica": "bjw18.ica",
    "exact_symmetric": "bjw18.from_symmetric",
    "noisy_tensor": "bjw18.projection",
    "sign_patterns": "bjw18.enumeration",
    "one_sparse": "bjw18.parallel",
    "arbitrary_noise": "bjw18.guesses",
    "sparse_noise": "bjw18.corruption",
    "lowest_layer": "gp18.layers.lowest_layer",
    "landscape": "gp18.landscape.algorithm",
    "steep_directions": "gp18.steep",
    "cliques": "gp18.cliques",
    "exponential": "gp18.exponential",
    "even": "gp18.even",
    "rejection": "gp18.landscape.rejection",
}

__all__ = ["Algorithm", "Call", "get_method", "methods"]


def methods() -> tuple[Algorithm, ...]:
    """Return every algorithm: its name, its paper, what it assumes and in which forms it comes.

    Returns
    -------
    tuple of Algorithm
        In the order in which `recover` considers them.

    Examples
    --------
    >>> import neurecover as nr
    >>> "hermite" in [method.name for method in nr.methods()]
    True
    """
    return tuple(get_method(name) for name in _MODULES)


def get_method(name: str, besides: str = "'auto' or ") -> Algorithm:
    """Return the algorithm of that name; `besides` are other words that the caller takes."""
    if not isinstance(name, str) or name not in _MODULES:
        hint = did_you_mean(str(name), _MODULES)
        raise ValueError(f"method needs to be {besides}one of {', '.join(_MODULES)}. Got {name!r} instead.{hint}")
    return import_module(f"neurecover.algorithms.{_MODULES[name]}").ALGORITHM
