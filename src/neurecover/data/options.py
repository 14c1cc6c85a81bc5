"""The numbers that decide how samples are divided and how long a model is waited for, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrepareOptions:
    """How samples are divided, and which of a stream are kept for the search."""

    holdout: float = 0.1  # of the samples are held out
    fewest: int = 5  # samples, and of them held out if there are ten or more: fewer test nothing
    misfits: float = 0.1  # of the held-out samples may join the fit: if more have to, the model is wrong
    # Held-out samples that judge if others joined the fit, a tenth of them at most and `fewest` at least. A network
    # that is wrong on half of the rows passes once in a million; more would more often hold a switch of their own.
    sealed: int = 20
    # Factor between a weight and their median in a search: for w = exp(6z), z normal, 2 of 4 exact networks were not
    # found without this limit, and all with it.
    moderate: float = 100.0
    scarce: int = 50  # samples with a rare value of a column, below which none is held out: ten per unit they may show
    sample_bytes: int = 32 * 2**20  # of the rows of a stream that are kept in memory
    unusual: int = 8  # one in so many more rows kept of a stream is one with unusual inputs
    first_rows: int = 4_096  # of a stream, which say what is usual


@dataclass(frozen=True)
class CallOptions:
    """How long a model behind calls is waited for, in seconds."""

    pause: float = 0.5  # before a failed call is repeated; twice as long every time after
    longest: float = 30.0  # between two tries, unless the model asks for more
    patience: float = 600.0  # that a model may ask to wait: beyond, a later run goes on with the saved answers
    together: float = 1.0  # that a call may take where time is limited and no batch was told
    least: float = 1.0  # that a call may take however little time is left
