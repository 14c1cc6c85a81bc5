"""Units that bend smoothly and are straight far from their bends: which function they are, and how many there are."""
