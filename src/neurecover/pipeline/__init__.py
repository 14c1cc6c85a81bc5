"""From samples or queries to a network with a certificate: load → prepare → estimate → finish → certify → Recovery."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neurecover.pipeline.recovering import estimate, recover
from neurecover.pipeline.running import run_algorithm

if TYPE_CHECKING:
    from neurecover.pipeline.extracting import extract
    from neurecover.pipeline.lowest import recover_lowest_layer

# Imported at first use, because they import large packages.
_LATER = {"extract": "extracting", "recover_lowest_layer": "lowest"}

__all__ = ["estimate", "extract", "recover", "recover_lowest_layer", "run_algorithm"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'neurecover.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"neurecover.pipeline.{_LATER[name]}"), name)
