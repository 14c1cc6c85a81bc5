"""The lowest layer in two steps, and the layers above it."""
