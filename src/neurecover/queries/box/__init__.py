"""The oracle: its queries, its resolution, where it may be queried, and its gradients."""
