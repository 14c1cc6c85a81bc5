"""Estimators and formats of other libraries."""
