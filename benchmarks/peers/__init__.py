"""Other tools on the same data, with the same score, time and threads."""
