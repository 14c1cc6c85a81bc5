"""Recover the weights of a hidden network from samples of its inputs and outputs, and say how far to trust them."""

from neurecover import simulate
from neurecover.algorithms import methods
from neurecover.certificate.ambiguity import sign_ambiguities
from neurecover.data import open, oracle
from neurecover.interop.halfspaces import HalfspaceIntersection, HalfspaceUnion
from neurecover.matching import Comparison, compare
from neurecover.models import Composite, DeepNetwork, Network, load, population_risk
from neurecover.pipeline import recover
from neurecover.pipeline_deep import DeepRecovery, recover_deep
from neurecover.results import Certificate, Recovery, Stage

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Comparison",
    "Composite",
    "DeepNetwork",
    "DeepRecovery",
    "HalfspaceIntersection",
    "HalfspaceUnion",
    "Network",
    "Recovery",
    "Stage",
    "compare",
    "load",
    "methods",
    "open",
    "oracle",
    "population_risk",
    "recover",
    "recover_deep",
    "sign_ambiguities",
    "simulate",
]
