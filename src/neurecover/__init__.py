"""Recover the weights of a hidden network from samples of its inputs and outputs, and say how far to trust them."""

from typing import Any

from neurecover import simulate
from neurecover.algorithms import methods
from neurecover.certificate import Certificate, Check, Verification, sign_ambiguities, verify
from neurecover.data import open, oracle
from neurecover.matching import Comparison, compare
from neurecover.models import Composite, DeepNetwork, Network, load, population_risk
from neurecover.pipeline import estimate, recover, recover_lowest_layer
from neurecover.results import Estimate, Recovery, Stage

__version__ = "0.1.0"

_SCIKIT_LEARN = ("HalfspaceIntersection", "HalfspaceUnion")

__all__ = [
    "Certificate",
    "Check",
    "Comparison",
    "Composite",
    "DeepNetwork",
    "Estimate",
    "HalfspaceIntersection",
    "HalfspaceUnion",
    "Network",
    "Recovery",
    "Stage",
    "Verification",
    "compare",
    "estimate",
    "load",
    "methods",
    "open",
    "oracle",
    "population_risk",
    "recover",
    "recover_lowest_layer",
    "sign_ambiguities",
    "simulate",
    "verify",
]


def __getattr__(name: str) -> Any:
    """The scikit-learn estimators, imported when they are asked for: scikit-learn takes a second to load."""
    if name in _SCIKIT_LEARN:
        from neurecover.interop import halfspaces

        return getattr(halfspaces, name)
    raise AttributeError(f"module 'neurecover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_SCIKIT_LEARN]
