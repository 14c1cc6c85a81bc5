"""The command `neurecover`.

Exit status: 0 for an exact or statistical verdict, 3 for approximate, 4 for failed, 2 for input that cannot be used,
130 when interrupted. Errors are one line on standard error.
"""

# In the order in which the help lists their commands.
from neurecover.cli import solving, layers, segmenting, judging, planning, measuring  # noqa: I001, F401
from neurecover.cli.app import main

__all__ = ["main"]
