"""`python -m neurecover`, the same as the command `neurecover`."""

from neurecover.cli import main

main()
