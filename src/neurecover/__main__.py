"""`python -m neurecover`, the same as the command `neurecover`."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """The command line; Ctrl-C while its libraries are loaded ends it as quietly as later on."""
    try:
        from neurecover.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
