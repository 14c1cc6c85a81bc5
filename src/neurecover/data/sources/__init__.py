"""Samples in memory or on a cluster: arrays, sparse matrices, data frames, Dask collections."""
