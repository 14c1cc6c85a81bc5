"""Sums over samples, made in one pass, mergeable in any order, and of a size that does not grow with n."""

from neurecover.statistics.base import Statistic
from neurecover.statistics.checks.digits import OutputDigits, OutputPrecision
from neurecover.statistics.checks.influence import Influence, InfluenceSums, ProbeScores, SerialResiduals, sketch
from neurecover.statistics.checks.nested_scores import NestedScores
from neurecover.statistics.checks.preactivations import PreactivationRange
from neurecover.statistics.checks.scores import ScoreSums
from neurecover.statistics.checks.shape_scores import ShapeCross, ShapeScores
from neurecover.statistics.checks.turned_sides import TurnedSides
from neurecover.statistics.checks.units_on import UnitsOn, weights_per_unit
from neurecover.statistics.fits.information import InformationSums
from neurecover.statistics.fits.readout import ReadoutSums
from neurecover.statistics.fits.residuals import Residuals
from neurecover.statistics.moments.hermite import HermiteCoefficients, HermiteSums, regression_degree
from neurecover.statistics.moments.joint import Moments
from neurecover.statistics.row_sample import RowSample
from neurecover.statistics.together import Alike, Divided, Division, Together

__all__ = [
    "Alike",
    "Divided",
    "Division",
    "HermiteCoefficients",
    "HermiteSums",
    "Influence",
    "InfluenceSums",
    "InformationSums",
    "Moments",
    "NestedScores",
    "OutputDigits",
    "OutputPrecision",
    "PreactivationRange",
    "ProbeScores",
    "ReadoutSums",
    "Residuals",
    "RowSample",
    "ScoreSums",
    "SerialResiduals",
    "ShapeCross",
    "ShapeScores",
    "Statistic",
    "Together",
    "TurnedSides",
    "UnitsOn",
    "regression_degree",
    "sketch",
    "weights_per_unit",
]
