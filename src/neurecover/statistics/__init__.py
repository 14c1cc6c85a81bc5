"""One-pass sums over samples, mergeable in any order; what leaves them does not grow with n."""

from neurecover.statistics.base import Statistic
from neurecover.statistics.digits import OutputDigits, OutputPrecision
from neurecover.statistics.gauss_newton import (
    CurvatureProduct,
    GaussNewtonSums,
    PreactivationRange,
    ReadoutSums,
    UnitBlockSums,
)
from neurecover.statistics.hermite import HermiteCoefficients, HermiteSums, regression_degree
from neurecover.statistics.influence import InfluenceSums, ProbeScores, SerialResiduals
from neurecover.statistics.model_sums import ModelSums, UnitsOn, incoming
from neurecover.statistics.moments import Moments
from neurecover.statistics.residuals import Residuals

__all__ = [
    "CurvatureProduct",
    "GaussNewtonSums",
    "HermiteCoefficients",
    "HermiteSums",
    "InfluenceSums",
    "ModelSums",
    "Moments",
    "OutputDigits",
    "OutputPrecision",
    "PreactivationRange",
    "ProbeScores",
    "ReadoutSums",
    "Residuals",
    "SerialResiduals",
    "Statistic",
    "UnitBlockSums",
    "UnitsOn",
    "incoming",
    "regression_degree",
]
