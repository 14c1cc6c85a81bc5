"""How far an answer can be trusted: the checks, and the verdict as a function of them."""

from neurecover.certificate.ambiguity import SignAmbiguities, sign_ambiguities
from neurecover.certificate.certifying import certify, certify_nothing, certify_untested
from neurecover.certificate.checks import Evidence
from neurecover.certificate.determined import scaled_to_determined
from neurecover.certificate.remedies import advice
from neurecover.certificate.verdict import VERDICTS, Certificate, Check, ParameterArrays, verdict_of
from neurecover.certificate.verification import Verification, verify

__all__ = [
    "VERDICTS",
    "Certificate",
    "Check",
    "Evidence",
    "ParameterArrays",
    "SignAmbiguities",
    "Verification",
    "advice",
    "certify",
    "certify_nothing",
    "certify_untested",
    "scaled_to_determined",
    "sign_ambiguities",
    "verdict_of",
    "verify",
]
