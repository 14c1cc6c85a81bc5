"""Extraction of weights from chosen queries: kinks on lines, hyperplanes, signs, layers."""
