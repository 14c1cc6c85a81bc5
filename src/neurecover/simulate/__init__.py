"""Synthetic data: hidden networks, input distributions, noise, smoothing, provably hard problems."""

from neurecover.simulate import hard
from neurecover.simulate.composites import composite_teacher, powers, products, tower, union
from neurecover.simulate.counterexamples import sign_ambiguous
from neurecover.simulate.inputs import (
    Distribution,
    Exponential,
    Gaussian,
    Laplace,
    Perturbed,
    Rademacher,
    Skewed,
    StudentT,
    SymmetricMixture,
    Uniform,
)
from neurecover.simulate.names import distribution
from neurecover.simulate.noise import Fixed, GaussianNoise, Noise, SparseGross, UniformNoise
from neurecover.simulate.samples import sample
from neurecover.simulate.teachers import smoothed, teacher

__all__ = [
    "Distribution",
    "Exponential",
    "Fixed",
    "Gaussian",
    "GaussianNoise",
    "Laplace",
    "Noise",
    "Perturbed",
    "Rademacher",
    "Skewed",
    "SparseGross",
    "StudentT",
    "SymmetricMixture",
    "Uniform",
    "UniformNoise",
    "composite_teacher",
    "distribution",
    "hard",
    "powers",
    "products",
    "sample",
    "sign_ambiguous",
    "smoothed",
    "teacher",
    "tower",
    "union",
]
