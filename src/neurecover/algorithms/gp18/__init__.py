"""The lowest layer of a deeper network, and unions of halfspaces [GP18]."""
