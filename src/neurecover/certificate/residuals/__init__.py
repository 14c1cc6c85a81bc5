"""Tests for structure in the residual, and the smallest unit that would be noticed."""
