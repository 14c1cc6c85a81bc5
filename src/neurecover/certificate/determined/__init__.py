"""Find which weights the samples determine, if they do not determine all."""
