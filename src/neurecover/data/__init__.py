"""Where samples come from, and the one loop over them."""

from neurecover.data.arrays import ArraySource
from neurecover.data.opening import as_source, open
from neurecover.data.oracle import Oracle, oracle
from neurecover.data.reduce import Statistic, reduce
from neurecover.data.rows import Rows, split, subsample
from neurecover.data.source import Source

__all__ = [
    "ArraySource",
    "Oracle",
    "Rows",
    "Source",
    "Statistic",
    "as_source",
    "open",
    "oracle",
    "reduce",
    "split",
    "subsample",
]
