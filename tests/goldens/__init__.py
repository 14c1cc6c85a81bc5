"""What the library answered before its engine was written anew: cases, and records of their properties as JSON."""

from goldens import papers, queries, samples, tables

GROUPS = {"samples": samples.CASES, "tables": tables.CASES, "queries": queries.CASES, "papers": papers.CASES}
