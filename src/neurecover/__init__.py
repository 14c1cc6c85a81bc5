"""Recover the weights of a hidden network from samples of its inputs and outputs, and say how far to trust them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neurecover.algorithms import methods
from neurecover.certificate import Certificate, Check, Verification, sign_ambiguities, verify
from neurecover.data import open, oracle
from neurecover.matching import Comparison, compare
from neurecover.models import Composite, DeepNetwork, Network, load, population_risk
from neurecover.pipeline import estimate, recover
from neurecover.results import Estimate, Recovery, Stage

__version__ = "0.1.0"

if TYPE_CHECKING:
    from neurecover import simulate
    from neurecover.interop.halfspaces import HalfspaceIntersection, HalfspaceUnion
    from neurecover.pipeline import extract, recover_lowest_layer

# Loaded when they are asked for: scikit-learn alone takes a second.
_LATER = {
    "HalfspaceIntersection": "neurecover.interop.halfspaces",
    "HalfspaceUnion": "neurecover.interop.halfspaces",
    "extract": "neurecover.pipeline",
    "recover_lowest_layer": "neurecover.pipeline",
    "simulate": "neurecover",
}

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
    "extract",
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
    """What is loaded when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'neurecover' has no attribute {name!r}")
    if name == "simulate":
        return import_module("neurecover.simulate")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_LATER]
