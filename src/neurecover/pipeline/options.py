"""The numbers that decide how a run divides its samples, its work and its time, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from neurecover.algorithms.gp18.options import LayerOptions
from neurecover.certificate.options import CertificateOptions
from neurecover.data.options import PrepareOptions


@dataclass(frozen=True)
class ActivationOptions:
    """How much work goes into the choice of an activation. Work is multiplications, as `solve.steps_within` counts."""

    race_work: float = 6e11  # of the race for "auto": all its rounds up to 30 inputs and 8 units, in 20 to 40 s
    race_share: float = 1.0 / 3.0  # of the time left, at the most
    hint_work: float = 1.2e11  # of the search for a better activation: all its rounds up to 10 inputs, in 5 to 10 s
    hint_steps: float = 0.5  # per step of the search before it: a hint is not worth more
    hint_rounds: tuple[int, ...] = (11, 11, 3, 3)  # as `search.activations.RaceOptions.rounds`
    hint_share: float = 0.2  # of the time left, kept for it
    better: float = 2.0  # ratio of mean squared errors that is worth a hint if the other activation fits to rounding
    clearly: float = 100.0  # the same if it does not


@dataclass(frozen=True)
class PipelineOptions:
    """The options of a run from samples."""

    prepare: PrepareOptions = field(default_factory=PrepareOptions)
    activation: ActivationOptions = field(default_factory=ActivationOptions)
    certificate: CertificateOptions = field(default_factory=CertificateOptions)
    layer: LayerOptions = field(default_factory=LayerOptions)
    late: float = 1.0  # seconds that a certificate may take after the end of the time budget
    late_share: float = 0.1  # of the time budget, if that is more
    rounding: float = 1e-9  # of Σ y²: outputs rounded more coarsely are fitted like noisy ones
    unknown_width: int = 64  # units per layer for which a stream's sample has to suffice if n_hidden is None
    min_search_rows: int = 2_000  # rows of a stream that a search is made on, at the least
    start_load: int = (
        100  # samples per parameter that bring the search close enough for two steps on all (`fit.model_fit`)
    )
    passes: int = 4  # over streamed samples: moments and a sample of rows, two steps, the certificate
    max_joined: int = 10  # times that held-out samples may join the fit: each closes a direction the others leave open
    random_rounds: int = 3  # of descents before "auto" runs other methods
    reserve_inputs: int = 20  # up to which it does: beyond, their tensors take minutes
