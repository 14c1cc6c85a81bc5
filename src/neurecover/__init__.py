"""Recover the weights of a hidden network from samples of its inputs and outputs, and say how far to trust them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neurecover import simulate
    from neurecover.algorithms import methods
    from neurecover.algorithms.atv21.tensors import (
        hermite_coefficients,
        hermite_tensors,
        power_singular_value,
        units_from_tensors,
    )
    from neurecover.algorithms.bjw18.statements import (
        halfspace_direction,
        halfspace_error_bound,
        incoherence,
        least_share,
    )
    from neurecover.algorithms.gklw19.distinguishing import distinguishing_matrix
    from neurecover.certificate import Certificate, Check, Verification, sign_ambiguities, verify
    from neurecover.data import endpoint, open, oracle
    from neurecover.interop.halfspaces import HalfspaceIntersection, HalfspaceUnion
    from neurecover.interop.hinges import HingeRegression
    from neurecover.interop.regressor import NetworkRecovery
    from neurecover.matching import Comparison, compare
    from neurecover.models import Composite, DeepNetwork, Network, load
    from neurecover.models.risk import population_risk
    from neurecover.pipeline import estimate, extract, recover, recover_lowest_layer
    from neurecover.planning import Plan, samples_needed
    from neurecover.results import Estimate, Recovery, Stage

__version__ = "0.2.0"

# Where each public name lives; a room is loaded when one of its names is asked for.
_ROOMS = {
    "neurecover.algorithms": ("methods",),
    "neurecover.algorithms.atv21.tensors": (
        "hermite_coefficients",
        "hermite_tensors",
        "power_singular_value",
        "units_from_tensors",
    ),
    "neurecover.algorithms.bjw18.statements": (
        "halfspace_direction",
        "halfspace_error_bound",
        "incoherence",
        "least_share",
    ),
    "neurecover.algorithms.gklw19.distinguishing": ("distinguishing_matrix",),
    "neurecover.certificate": ("Certificate", "Check", "Verification", "sign_ambiguities", "verify"),
    "neurecover.data": ("endpoint", "open", "oracle"),
    "neurecover.interop.halfspaces": ("HalfspaceIntersection", "HalfspaceUnion"),
    "neurecover.interop.hinges": ("HingeRegression",),
    "neurecover.interop.regressor": ("NetworkRecovery",),
    "neurecover.matching": ("Comparison", "compare"),
    "neurecover.models": ("Composite", "DeepNetwork", "Network", "load"),
    "neurecover.models.risk": ("population_risk",),
    "neurecover.pipeline": ("estimate", "extract", "recover", "recover_lowest_layer"),
    "neurecover.planning": ("Plan", "samples_needed"),
    "neurecover.results": ("Estimate", "Recovery", "Stage"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Certificate",
    "Check",
    "Comparison",
    "Composite",
    "DeepNetwork",
    "Estimate",
    "HalfspaceIntersection",
    "HalfspaceUnion",
    "HingeRegression",
    "Network",
    "NetworkRecovery",
    "Plan",
    "Recovery",
    "Stage",
    "Verification",
    "compare",
    "distinguishing_matrix",
    "endpoint",
    "estimate",
    "extract",
    "halfspace_direction",
    "halfspace_error_bound",
    "hermite_coefficients",
    "hermite_tensors",
    "incoherence",
    "least_share",
    "load",
    "methods",
    "open",
    "oracle",
    "population_risk",
    "power_singular_value",
    "recover",
    "recover_lowest_layer",
    "samples_needed",
    "sign_ambiguities",
    "simulate",
    "units_from_tensors",
    "verify",
]


def __getattr__(name: str) -> Any:
    """A public name from its room, or a room itself."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "simulate":
        return import_module("neurecover.simulate")
    raise AttributeError(f"module 'neurecover' has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
