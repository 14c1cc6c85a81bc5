"""Which weights the samples determine where they do not determine all."""
