"""Models that are queried: how to call them, where to query them, and how to read their answers."""
