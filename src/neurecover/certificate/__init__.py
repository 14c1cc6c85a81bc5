"""How far an answer can be trusted: the checks, and the verdict as a function of them."""

from neurecover.certificate.advising import advice
from neurecover.certificate.case import Case
from neurecover.certificate.certifying import certify, certify_nothing, certify_untested
from neurecover.certificate.determined.weights import scaled_to_determined
from neurecover.certificate.evidence import Evidence
from neurecover.certificate.options import CertificateOptions
from neurecover.certificate.signs.ambiguity import SignAmbiguities, sign_ambiguities
from neurecover.certificate.verdict import VERDICTS, Certificate, Check, Likelihood, ParameterArrays, verdict_of
from neurecover.certificate.verification import Verification, verify

__all__ = [
    "VERDICTS",
    "Case",
    "Certificate",
    "CertificateOptions",
    "Check",
    "Evidence",
    "Likelihood",
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
