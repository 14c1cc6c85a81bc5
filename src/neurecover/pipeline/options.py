"""Numbers that decide how a run divides its samples, work and time, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from neurecover.algorithms.gp18.options import LayerOptions
from neurecover.certificate.options import CertificateOptions
from neurecover.data.options import PrepareOptions


@dataclass(frozen=True)
class ActivationOptions:
    """How much work goes into choosing an activation, in multiplications as counted by `solve.steps_within`."""

    race_work: float = 6e11  # limit for "auto": enough for all rounds up to 30 inputs and 8 units, 20 to 40 s
    race_share: float = 1.0 / 3.0  # largest share of the remaining time
    hint_work: float = 1.2e11  # limit of the search for a hint: enough for all rounds up to 10 inputs, 5 to 10 s
    hint_steps: float = 0.5  # steps per step of the main search: a hint is not worth more
    hint_rounds: tuple[int, ...] = (11, 11, 3, 3)  # as `search.activations.RaceOptions.rounds`
    hint_share: float = 0.2  # share of the remaining time that is kept for a hint
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
    late_share: float = 0.1  # the same as a share of the time budget; the larger one counts
    rounding: float = 1e-9  # share of Σ y²: outputs with larger rounding errors are fitted like noisy ones
    unknown_width: int = 64  # units per layer for which the sample of a stream must suffice if n_hidden is None
    min_search_rows: int = 2_000  # fewest rows of a stream to search on
    start_load: int = 100  # samples per parameter of a search after which two steps on all suffice (`fit.model_fit`)
    passes: int = 4  # over streamed samples: one for moments and a sample, two steps, one for the certificate
    max_joined: int = 10  # times that held-out samples may join the fit: each determines one open direction
    random_rounds: int = 3  # rounds of descents before "auto" runs other methods
    narrow: float = 0.02  # errors of unit rows to first order that are not compared with draws, as in `search.rivals`
    draw_work: float = 2e9  # multiplications that draws may take: a second or two
    best_draws: int = 4  # from which the fit is made anew: one that is better has many draws about it
    reserve_inputs: int = 20  # with more inputs "auto" does not run other methods: their tensors take minutes
