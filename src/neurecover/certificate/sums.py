"""The samples that count for a network, and the sums over them: in one pass where samples stream."""

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
    """Sums at a network on whitened inputs over the samples that are `counted`, each when it is first asked for."""

    white: Model
    counted: Source
    noisy: bool
    bias: bool
    by_products: bool
    rng: np.random.Generator
    options: CertificateOptions

    @cached_property
    def probes(self) -> np.ndarray | None:
        """Units that might be missing, under noise."""
        return draw_probes(self.white, self.options.probes, self.bias, self.rng) if self.noisy else None

    @cached_property
    def alternatives(self) -> Alternatives | None:
        """What else might be missing, under noise."""
        return Alternatives.of(self.white, self.options.nested) if self.noisy else None

    def _blank_curvature(self) -> InformationSums:
        return InformationSums.of(self.white, self.bias, self.probes, self.alternatives)

    @property
    def _near(self) -> float:
        """How near to a kink a sample is at it: under noise none is."""
        return 0.0 if self.noisy else self.options.at_kink

    @cached_property
    def _one_pass(self) -> Together | None:
        """All sums of a stream; None where samples are in memory."""
        if not self.counted.base.streams or self.by_products:
            return None
        white = self.white
        wanted: dict[str, Statistic] = {"curvature": self._blank_curvature(), "serial": SerialResiduals(white)}
        wanted |= {"close": UnitsOn(white, self.options.within), "on": UnitsOn(white, self._near)}
        wanted["digits"] = OutputDigits(white.n_outputs)
        if self.noisy and isinstance(white, Network) and ScoreSums.is_for(white):
            wanted["scores"] = ScoreSums(white, self.bias)
        return reduce(self.counted, Together(**wanted))

    @cached_property
    def sides(self) -> Sides:
        """On which side of their kinks the units are seen, by different inputs."""
        if self._one_pass is not None:
            seen = self._one_pass.part("on", UnitsOn)
        else:
            seen = reduce(distinct_inputs(self.counted, self.options.memory), UnitsOn(self.white, self._near))
        return Sides.of(self.white, seen, self.bias, self.options.margin)

    @cached_property
    def rows(self) -> Source:
        """The samples that are at no kink."""
        if not self.sides.at_kink:
            return self.counted
        return AwayFromKinks(self.counted, self.white, self.options.at_kink)

    @cached_property
    def _pass_of_rows(self) -> Together | None:
        """The one pass, where it is one over `rows`."""
        return None if self.sides.at_kink else self._one_pass

    @cached_property
    def serial(self) -> SerialResiduals:
        """The residuals, and products of neighbouring ones."""
        if self._pass_of_rows is not None:
            return self._pass_of_rows.part("serial", SerialResiduals)
        return reduce(self.rows, SerialResiduals(self.white))

    @cached_property
    def curvature(self) -> InformationSums:
        """The sums behind the information."""
        sums = self._blank_curvature()
        if self._pass_of_rows is not None:
            return self._pass_of_rows.part("curvature", type(sums))
        return reduce(self.rows, sums)

    @cached_property
    def close(self) -> UnitsOn:
        """The samples next to the kinks."""
        if self._one_pass is not None:
            return self._one_pass.part("close", UnitsOn)
        return reduce(self.rows, UnitsOn(self.white, self.options.within))

    @property
    def scores(self) -> ScoreSums | None:
        """The scores of a stream, where they are no larger than the information."""
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
