"""Views of a source: whitened, weighted, repaired or selected rows."""
