"""Recover the weights of a hidden network from samples of its inputs and outputs, and say how far to trust them."""

from neurecover import simulate
from neurecover.compare import Comparison, compare
from neurecover.data import open, oracle
from neurecover.methods import methods
from neurecover.network import Network, load
from neurecover.recover import recover
from neurecover.results import Certificate, Recovery, Stage

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Comparison",
    "Network",
    "Recovery",
    "Stage",
    "compare",
    "load",
    "methods",
    "open",
    "oracle",
    "recover",
    "simulate",
]
