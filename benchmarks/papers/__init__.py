"""The published methods beyond what their papers state: other inputs, noise, memory, unknown widths."""
