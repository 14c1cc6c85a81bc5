"""Numbers that decide how samples are divided and how long to wait for a model, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrepareOptions:
    """How samples are divided, and which rows of a stream are kept for the search."""

    holdout: float = 0.1  # share of the samples that is held out
    fewest: int = 5  # fewest samples, and fewest held-out samples if there are ten or more samples: fewer test nothing
    misfits: float = 0.1  # share of the held-out samples that may join the fit: if more have to, the model is wrong
    # Held-out samples that stay sealed and judge the network when other held-out samples joined the fit; at most a
    # tenth of the held-out samples, at least `fewest`. A network that is wrong on half of the rows passes 20 once in a
    # million. More sealed samples would more often contain a unit's switch that no fitted sample shows.
    sealed: int = 20
    # Largest factor between a weight and the median weight in a search: for w = exp(6z), z normal, the search found
    # 2 of 4 exact networks without this limit, and all with it.
    moderate: float = 100.0
    scarce: int = 50  # if fewer samples share a rare value of a column, none is held out: ten per unit they may show
    sample_bytes: int = 32 * 2**20  # memory for the rows of a stream that are kept
    unusual: int = 8  # one in this many of the kept rows of a stream has unusual inputs
    first_rows: int = 4_096  # rows of a stream that define what is usual


@dataclass(frozen=True)
class CallOptions:
    """How long to wait for a model that is called, in seconds."""

    pause: float = 0.5  # before the first repetition of a failed call; doubled at every further one
    longest: float = 30.0  # between two tries, unless the model asks for more
    patience: float = 600.0  # longest wait a model may ask for; beyond it, a later run continues from saved answers
    together: float = 1.0  # duration of a call, if time is limited and no batch size was given
    grace: float = 2.0  # for calls under way when the queries are stopped, by Ctrl-C or by a failure
    least: float = 1.0  # shortest timeout of a call, however little time is left
