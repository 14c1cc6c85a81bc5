"""The samples that count for a network, and the sums over them, in one pass if samples are streamed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from neurecover.certificate.information.away import AwayFromKinks
from neurecover.certificate.options import CertificateOptions
from neurecover.certificate.residuals.alternatives import Alternatives
from neurecover.certificate.residuals.probes import draw_probes
from neurecover.certificate.sides import Sides
from neurecover.data import Source, distinct_inputs, reduce
from neurecover.data.distinct import with_gaps
from neurecover.models import Model, Network
from neurecover.statistics import (
    InformationSums,
    OutputDigits,
    OutputPrecision,
    ScoreSums,
    SerialResiduals,
    Statistic,
    Together,
    UnitsOn,
)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums for a network on whitened inputs over the `counted` samples, each computed at first use."""

    white: Model
    counted: Source
    noisy: bool
    bias: bool
    by_products: bool
    rng: np.random.Generator
    options: CertificateOptions

    @cached_property
    def probes(self) -> np.ndarray | None:
        """Random units that the network might lack; only under noise."""
        return draw_probes(self.white, self.options, self.bias, self.rng) if self.noisy else None

    @cached_property
    def alternatives(self) -> Alternatives | None:
        """Other columns that the network might lack; only under noise."""
        return Alternatives.of(self.white, self.options.nested) if self.noisy else None

    def blank_curvature(self) -> InformationSums:
        """Return the sums of the information matrix, with nothing added yet."""
        return InformationSums.of(self.white, self.bias, self.probes, self.alternatives)

    @property
    def _near(self) -> float:
        """The distance within which a sample is at a kink; 0 under noise, where none is."""
        return 0.0 if self.noisy else self.options.at_kink

    @cached_property
    def _one_pass(self) -> Together | None:
        """All sums of a stream; None if samples are in memory."""
        if not self.counted.base.streams or self.by_products:
            return None
        white = self.white
        wanted: dict[str, Statistic] = {"curvature": self.blank_curvature(), "serial": SerialResiduals(white)}
        wanted |= {"close": UnitsOn(white, self.options.within), "on": UnitsOn(white, self._near)}
        wanted["digits"] = OutputDigits(white.n_outputs)
        if self.noisy and isinstance(white, Network) and ScoreSums.is_for(white):
            wanted["scores"] = ScoreSums(white, self.bias)
        return reduce(self.counted, Together(**wanted))

    @cached_property
    def sides(self) -> Sides:
        """The counts of distinct inputs on either side of every unit's kink."""
        if self._one_pass is not None:
            seen = self._one_pass.part("on", UnitsOn)
        else:
            seen = reduce(distinct_inputs(self.counted, self.options.memory), UnitsOn(self.white, self._near))
        return Sides.of(self.white, seen, self.bias, self.options.margin)

    @cached_property
    def rows(self) -> Source:
        """The samples that are not at a kink."""
        if not self.sides.at_kink:
            return self.counted
        return AwayFromKinks(self.counted, self.white, self.options.at_kink)

    @cached_property
    def _pass_of_rows(self) -> Together | None:
        """The sums of a stream if its one pass went over `rows`; else None."""
        return None if self.sides.at_kink else self._one_pass

    @cached_property
    def serial(self) -> SerialResiduals:
        """The sums of residuals and of products of successive residuals."""
        if self._pass_of_rows is not None:
            return self._pass_of_rows.part("serial", SerialResiduals)
        return reduce(self.rows, SerialResiduals(self.white))

    @cached_property
    def curvature(self) -> InformationSums:
        """The sums of the information matrix."""
        sums = self.blank_curvature()
        if self._pass_of_rows is not None:
            return self._pass_of_rows.part("curvature", type(sums))
        return reduce(self.rows, sums)

    @cached_property
    def close(self) -> UnitsOn:
        """The counts of samples near the kinks."""
        if self._one_pass is not None:
            return self._one_pass.part("close", UnitsOn)
        return reduce(self.rows, UnitsOn(self.white, self.options.within))

    @property
    def scores(self) -> ScoreSums | None:
        """The scores of a stream, if their sums are no larger than those of the information."""
        if self._one_pass is None or "scores" not in self._one_pass.parts:
            return None
        return self._one_pass.part("scores", ScoreSums)

    @cached_property
    def precision(self) -> OutputPrecision:
        """The digits of the outputs."""
        if self._one_pass is not None:
            return self._one_pass.part("digits", OutputDigits).precision()
        found = reduce(self.counted, OutputDigits(self.white.n_outputs)).precision()
        return found if self.counted.base.streams else with_gaps(found, self.counted.collect()[1])
