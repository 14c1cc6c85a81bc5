"""Where samples come from, and the one loop over them."""

from neurecover.data.distinct import distinct_inputs
from neurecover.data.loop import reduce, side_by_side
from neurecover.data.opening import as_source, open
from neurecover.data.oracles.command import CommandBox
from neurecover.data.oracles.diagnosis import box_looks, classes_told, perhaps_probabilities
from neurecover.data.oracles.oracle import Oracle, oracle
from neurecover.data.preparing import Prepared, loaded, prepared, second_moments, with_misfits
from neurecover.data.source import Source
from neurecover.data.sources.arrays import ArraySource
from neurecover.data.views.rows import Rows, split, subsample
from neurecover.data.views.whitening import Mapped, Whitened, Whitening, unwhitened

__all__ = [
    "ArraySource",
    "CommandBox",
    "Mapped",
    "Oracle",
    "Prepared",
    "Rows",
    "Source",
    "Whitened",
    "Whitening",
    "as_source",
    "box_looks",
    "classes_told",
    "distinct_inputs",
    "loaded",
    "open",
    "oracle",
    "perhaps_probabilities",
    "prepared",
    "reduce",
    "second_moments",
    "side_by_side",
    "split",
    "subsample",
    "unwhitened",
    "with_misfits",
]
