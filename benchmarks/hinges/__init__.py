"""Segmented regression: lines beside R's `segmented`, tests and counts, hinge planes, data as people have them."""
