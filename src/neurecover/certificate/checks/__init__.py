"""The checks: each defines its figure, limit, sentence and remedy. `certifying` lists them in their order."""
