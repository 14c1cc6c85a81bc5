"""From samples or queries to a certified network: load → prepare → estimate → finish → certify → Recovery."""

from neurecover.pipeline.extracting import extract
from neurecover.pipeline.lowest import recover_lowest_layer
from neurecover.pipeline.recovering import estimate, recover
from neurecover.pipeline.running import estimated

__all__ = ["estimate", "estimated", "extract", "recover", "recover_lowest_layer"]
