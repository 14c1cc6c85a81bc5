"""The pictures of the gallery: its blocks are run, and what they save is put beside the page."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import matplotlib

DOCS = Path(__file__).parent


def main() -> None:
    matplotlib.use("Agg")
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    wanted = set(re.findall(r"\(pictures/(\w+\.png)\)", text))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            exec(compile(block, "gallery.md", "exec"), {"__name__": "__example__"})
        for name in sorted(wanted):
            shutil.copy(Path(folder) / name, DOCS / "pictures" / name)


if __name__ == "__main__":
    main()
