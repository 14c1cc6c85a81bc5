"""Convert a broken line to a network, and gather the facts that its certificate is made from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neurecover.certificate import Certificate, Likelihood, ParameterArrays
from neurecover.certificate.from_segments import Segments, certify_segments
from neurecover.hinges.options import DEFAULTS, HingeOptions
from neurecover.hinges.segmented import Segmented
from neurecover.models import Network


def as_network(found: Segmented) -> Network:
    """Return the reported line as y = A relu(x − ψ) + β x + c, its slopes and breaks in the user's units."""
    points, line = found.points, found.line
    a, b, *d = line.coefficients
    K, size = len(line.breaks), points.size
    slopes = np.array([b, *d]) / size
    offset = a + points.level - slopes[0] * points.centre
    breaks = points.x(line.breaks)
    return Network(np.ones((K, 1)), -breaks, slopes[None, 1:], np.array([offset]), C=slopes[None, :1])


def certify_line(found: Segmented, covariance: np.ndarray) -> Certificate:
    """Certify a broken line whose constant, first slope, slope changes and breaks have this covariance."""
    K = found.n_hinges
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    arrays = {"W": np.zeros((K, 1)), "b": errors[2 + K :], "A": errors[None, 2 : 2 + K], "C": errors[None, 1:2]}
    made = certify_segments(certificate_facts(found, ParameterArrays(arrays | {"c": errors[:1]})))
    if found.exact:
        return made
    if found.dispersion is None:
        made = replace(made, likelihood=Likelihood(found.fit.rss, round(found.points.n), found.fit.n_parameters))
    if made.verdict != "statistical":
        return made
    # The network's parameters are W = 1, b = −ψ, A, C, c.
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    parts = (np.zeros((K, len(root))), -root[2 + K :], root[2 : 2 + K], root[1:2], root[:1])
    return replace(made, covariance_root=np.vstack(parts))


def certificate_facts(found: Segmented, errors: ParameterArrays, options: HingeOptions = DEFAULTS) -> Segments:
    """Gather what the checks look at; `errors` are those of the network's arrays."""
    points, rival, dispersion, drawn = found.points, found.rival, found.dispersion, found.posterior
    return Segments(
        n_rows=points.n if dispersion is None else float(len(points)),
        n_hinges=found.n_hinges,
        told=found.told,
        loss=found.loss,
        dof=found.dof if dispersion is None else float(len(points) - found.fit.n_parameters),
        noise=found.noise,
        exact=found.exact,
        spare=found.spare,
        at_limit=float(drawn.weight @ drawn.points.at_limit(drawn.breaks, options)),
        no_hinge=found.no_hinge.p_value,
        further=found.further.p_value,
        correlation=found.serial.correlation,
        correlation_z=found.serial.z,
        correlation_p=found.serial.p_value,
        rival="" if rival is None else rival.name,
        ahead=0.0 if rival is None else rival.ahead,
        ahead_in="BIC" if rival is None else rival.measure,
        outliers=tuple(int(row) for row in found.outliers),
        n_parameters=found.fit.n_parameters,
        errors=errors,
        level=options.level,
        serial_level=options.serial,
        ahead_limit=options.ahead if rival is None else rival.limit,
        scatter=None if dispersion is None else (dispersion.square, dispersion.dof, dispersion.p_value),
        least=np.inf if dispersion is None else dispersion.least,
    )
