"""Sources of samples, and the one loop over them."""

from neurecover.data.distinct import distinct_inputs
from neurecover.data.loop import reduce, side_by_side
from neurecover.data.opening import as_source, open
from neurecover.data.oracles.command import CommandModel
from neurecover.data.oracles.diagnosis import diagnose_labels, diagnose_oracle, diagnose_probabilities
from neurecover.data.oracles.endpoint import endpoint
from neurecover.data.oracles.oracle import Oracle, oracle
from neurecover.data.preparing import Prepared, load_samples, prepare_samples, second_moments, with_misfits
from neurecover.data.source import Source
from neurecover.data.sources.arrays import ArraySource
from neurecover.data.views.rows import split, subsample
from neurecover.data.views.whitening import Mapped, Whitened, Whitening, unwhiten

__all__ = [
    "ArraySource",
    "CommandModel",
    "Mapped",
    "Oracle",
    "Prepared",
    "Source",
    "Whitened",
    "Whitening",
    "as_source",
    "diagnose_labels",
    "diagnose_oracle",
    "diagnose_probabilities",
    "distinct_inputs",
    "endpoint",
    "load_samples",
    "open",
    "oracle",
    "prepare_samples",
    "reduce",
    "second_moments",
    "side_by_side",
    "split",
    "subsample",
    "unwhiten",
    "with_misfits",
]
