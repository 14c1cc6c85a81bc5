"""The picture at the top of the README, and those of the gallery: its blocks are run, and what they save is kept."""

import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib

import neurecover as nr
from neurecover.report.figures import INK, SERIES, STYLE, draw_weights
from neurecover.report.layers import layer_tables, recovery_tables

DOCS = Path(__file__).parent.resolve()


def draw_front(path: Path, narrow: bool = False) -> None:
    """The top of the README: a hidden layer, the one that was found, and every weight with its 95 % interval.

    Side by side, or below each other for a phone.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    truth = nr.simulate.teacher(n_inputs=8, n_hidden=6, random_state=1).normal_form()
    X, Y = nr.simulate.sample(truth, 3_000, noise=0.2, random_state=1)
    found = nr.recover(X, Y, random_state=0)  # the number of hidden units is not told
    paired = nr.compare(found.network, truth).permutation
    sought, hidden = layer_tables(truth)[0], recovery_tables(found)[0]
    with rc_context(STYLE):
        figure = Figure(figsize=(4.0, 8.4) if narrow else (10.5, 3.1), layout="constrained")
        left, middle, right = figure.subplots(3, 1) if narrow else figure.subplots(1, 3)
        draw_weights(left, sought)
        left.set_title("the hidden layer: 6 units, 8 weights and a bias", loc="left")
        draw_weights(middle, replace(sought, values=hidden.values[paired]))  # in the order of the truth
        middle.set_title(f"recovered from {len(X):,} noisy samples", loc="left")
        true, estimate = sought.values.ravel(), hidden.values[paired].ravel()
        assert hidden.errors is not None
        error = 1.96 * hidden.errors[paired].ravel()
        right.plot([true.min(), true.max()], [true.min(), true.max()], color=INK, linewidth=0.8)
        right.errorbar(true, estimate, error, fmt=".", color=SERIES[0], markersize=4, elinewidth=0.9)
        right.set_title(f"every weight with its interval ({found.certificate.verdict})", loc="left")
        right.set_xlabel("true weight")
        right.set_ylabel("estimate, 95 % interval")
        figure.savefig(path, dpi=110)


def main() -> None:
    matplotlib.use("Agg")
    draw_front(DOCS / "pictures" / "front.png")
    draw_front(DOCS / "pictures" / "front-narrow.png", narrow=True)
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
