"""Recover the weights of a hidden network from samples of its inputs and outputs, and say how far to trust them."""

from neurecover import simulate
from neurecover.compare import Comparison, compare
from neurecover.data import open, oracle
from neurecover.deep import DeepNetwork, compare_lower, load_deep
from neurecover.identifiability import sign_ambiguities
from neurecover.interop.halfspaces import HalfspaceIntersection, HalfspaceUnion
from neurecover.methods import methods
from neurecover.network import Network, load
from neurecover.recover import recover
from neurecover.recover_deep import DeepRecovery, recover_deep
from neurecover.results import Certificate, Recovery, Stage
from neurecover.risk import population_risk

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Comparison",
    "DeepNetwork",
    "DeepRecovery",
    "HalfspaceIntersection",
    "HalfspaceUnion",
    "Network",
    "Recovery",
    "Stage",
    "compare",
    "compare_lower",
    "load",
    "load_deep",
    "methods",
    "open",
    "oracle",
    "population_risk",
    "recover",
    "recover_deep",
    "sign_ambiguities",
    "simulate",
]
