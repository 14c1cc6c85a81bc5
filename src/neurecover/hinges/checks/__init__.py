"""Tests against a broken line: further hinges, correlated neighbours, other shapes."""
