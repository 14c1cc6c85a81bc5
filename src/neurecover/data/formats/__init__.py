"""Samples in files: CSV, Parquet, npy, npz, Zarr."""
