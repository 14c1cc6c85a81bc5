"""From samples or queries to a certified network: load → prepare → estimate → finish → certify → Recovery."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neurecover.pipeline.recovering import estimate, recover
from neurecover.pipeline.running import estimated

if TYPE_CHECKING:
    from neurecover.pipeline.extracting import extract
    from neurecover.pipeline.lowest import recover_lowest_layer

# Roads that bring rooms of their own are loaded when they are taken.
_LATER = {"extract": "extracting", "recover_lowest_layer": "lowest"}

__all__ = ["estimate", "estimated", "extract", "recover", "recover_lowest_layer"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'neurecover.pipeline' has no attribute {name!r}")
    return getattr(import_module(f"neurecover.pipeline.{_LATER[name]}"), name)
