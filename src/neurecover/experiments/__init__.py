"""Benchmarks and the papers' figures, by name."""

from neurecover.experiments import (
    activations,
    atv21,
    atv21_crowded,
    bench_statistics,
    bjw18,
    choices,
    coverage,
    deep_peers,
    extract,
    finisher,
    gklw19,
    gklw19_bench,
    gp18,
    gp18_layers,
    large,
    lateness,
    layers,
    peers,
    resumes,
    scale,
    tables,
    torture,
    trained,
    workers,
)
from neurecover.experiments.experiment import Experiment

__all__ = ["Experiment", "benchmarks", "reproductions"]


def benchmarks() -> dict[str, Experiment]:
    """What `neurecover bench` runs."""
    every = (
        bench_statistics.PASSES,
        finisher.FINISHER,
        finisher.NOISE,
        choices.CHOICES,
        coverage.COVERAGE,
        activations.TABLE,
        large.TABLE,
        lateness.LATENESS,
        layers.TABLE,
        tables.TABLE,
        *extract.EXTRACTS,
        peers.PEERS,
        deep_peers.TABLE,
        scale.SCALE,
        workers.WORKERS,
        resumes.RESUMES,
        torture.TORTURE,
        trained.TRAINED,
        *atv21.EXPERIMENTS,
        *atv21_crowded.EXPERIMENTS,
        *gklw19_bench.BENCHMARKS,
        *bjw18.EXPERIMENTS,
        *(experiment for experiment in gp18.EXPERIMENTS if experiment is not gp18.THRESHOLD),
        gp18_layers.LAYERS,
    )
    return {experiment.name: experiment for experiment in every}


def reproductions() -> dict[str, Experiment]:
    """What `neurecover reproduce` runs."""
    return {experiment.name: experiment for experiment in (*gklw19.REPRODUCTIONS, gp18.THRESHOLD)}
