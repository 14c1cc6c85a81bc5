"""Certificates that say how far an answer can be trusted: checks, and a verdict that is a function of them."""

from neurecover.certificate.advising import advice
from neurecover.certificate.case import Case
from neurecover.certificate.certifying import certify, certify_constant, certify_untested
from neurecover.certificate.determined.weights import scaled_to_determined
from neurecover.certificate.evidence import Evidence
from neurecover.certificate.information.plane_posterior import Draws, draw_planes, interval, work_of_draws
from neurecover.certificate.options import CertificateOptions
from neurecover.certificate.signs.ambiguity import sign_ambiguities
from neurecover.certificate.verdict import Certificate, Check, Likelihood, ParameterArrays
from neurecover.certificate.verification import Verification, verify

__all__ = [
    "Case",
    "Certificate",
    "CertificateOptions",
    "Check",
    "Draws",
    "Evidence",
    "Likelihood",
    "ParameterArrays",
    "Verification",
    "advice",
    "certify",
    "certify_constant",
    "certify_untested",
    "draw_planes",
    "interval",
    "scaled_to_determined",
    "sign_ambiguities",
    "verify",
    "work_of_draws",
]
