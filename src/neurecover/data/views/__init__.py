"""Views of a source: its rows whitened, weighted, repaired, or only some of them."""
