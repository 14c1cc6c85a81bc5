"""Models that are queried: what can be asked, where, and what its answers look like."""
