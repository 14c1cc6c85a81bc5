"""One-pass sums over samples, mergeable in any order; what leaves them does not grow with n."""

from neurecover.statistics.base import Statistic
from neurecover.statistics.digits import OutputDigits, OutputPrecision
from neurecover.statistics.hermite import HermiteCoefficients, HermiteSums, regression_degree
from neurecover.statistics.influence import Influence, InfluenceSums, ProbeScores, SerialResiduals, sketched
from neurecover.statistics.information import InformationSums
from neurecover.statistics.moments import Moments
from neurecover.statistics.preactivations import PreactivationRange
from neurecover.statistics.readout import ReadoutSums
from neurecover.statistics.residuals import Residuals
from neurecover.statistics.row_sample import RowSample
from neurecover.statistics.scores import ScoreSums
from neurecover.statistics.shape_scores import ShapeCross, ShapeScores
from neurecover.statistics.together import Alike, Divided, Division, Together
from neurecover.statistics.units_on import UnitsOn, incoming

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
    "UnitsOn",
    "incoming",
    "regression_degree",
    "sketched",
]
