"""Weights from chosen questions: kinks on lines, planes, signs, layers."""
