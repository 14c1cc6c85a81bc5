"""Every check with its figure, limit, sentence and remedy in one place; `certifying` has them in their order."""
