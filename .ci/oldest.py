"""Print the oldest releases that pyproject.toml allows, as constraints for pip: `numpy>=2.0` becomes `numpy==2.0`."""

import re
import sys
import tomllib
from pathlib import Path

LOWER = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)$")


def constraints(text: str) -> list[str]:
    """Return a line for every requirement with a lower bound, sorted by name."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    bounds = (match.groups() for match in map(LOWER.match, wanted) if match)
    return sorted({f"{name}=={version}" for name, version in bounds})


if __name__ == "__main__":
    sys.stdout.write("\n".join(constraints((Path(__file__).parents[1] / "pyproject.toml").read_text())) + "\n")
