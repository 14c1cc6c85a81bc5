"""Random units that a network may lack: if the residual is noise, it does not correlate with them."""

from __future__ import annotations

import numpy as np

from neurecover.certificate.information.matrix import Information
from neurecover.certificate.options import CertificateOptions
from neurecover.data import Source, reduce
from neurecover.models import Model, Network
from neurecover.statistics import ProbeScores


def draw_probes(white: Model, options: CertificateOptions, bias: bool, rng: np.random.Generator) -> np.ndarray:
    """Draw units that the first layer might lack, (e, D): half of them anywhere, half close to the units found."""
    W = white.hidden_weights[0]
    b = white.b if isinstance(white, Network) else np.zeros(len(W))
    V = np.hstack([W, b[:, None]]) if bias else W
    anywhere = rng.standard_normal((options.probes // 2 if len(V) else options.probes, V.shape[1]))
    if not len(V):
        return anywhere
    near = rng.integers(len(V), size=options.probes - len(anywhere))
    unit = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
    return np.vstack([anywhere, unit[near] + options.near_unit * rng.standard_normal((len(near), V.shape[1]))])


def probe_test(
    information: Information, variance: float, probes: np.ndarray, samples: Source, significance: float
) -> float:
    """Return the p-value of the residual's correlation with the probes, under the hypothesis that it is noise.

    If noise of equal variance does not explain the correlation, noise that differs between samples is tried.
    """
    p = information.model.n_outputs
    e = information.cross.shape[1] // p  # further columns per output, the probes first
    own = np.concatenate([np.arange(o * e, o * e + len(probes)) for o in range(p)])
    p_value = information.score_test(variance, own)
    if p_value >= significance:
        return p_value
    scores = ProbeScores(information.model, information.free, probes, information.explained[:, own])
    return max(p_value, reduce(samples, scores).p_value())
