"""Write the golden records anew: in the folder `tests`, `python -m goldens.make [part of a case's name ...]`.

The records are those of the library that Python finds, so that PYTHONPATH chooses an older one. CPU seconds are kept in
units of a calibration that ran in the same process; nothing compares them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from goldens import GROUPS
from goldens.outcome import record

FOLDER = Path(__file__).parent


def calibration() -> float:
    """Measure the CPU seconds of a fixed amount of the work that a fit is made of, the best of three."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2_000, 120))

    def once() -> float:
        began = time.process_time()
        for _ in range(20):
            np.linalg.cholesky(np.maximum(A, 0.0).T @ A + 2_000 * np.eye(120))
        return time.process_time() - began

    return min(once() for _ in range(3))


def _written(records: dict[str, dict]) -> str:
    """Write a line per property and per check, so that a change can be read line by line."""
    written = []
    for name, facts in records.items():
        lines = [f"  {_json(key)}: {_json(value)}" for key, value in facts.items() if key != "checks"]
        if "checks" in facts:
            lines.append('  "checks": [\n' + ",\n".join(f"   {_json(check)}" for check in facts["checks"]) + "\n  ]")
        written.append(f" {_json(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(written) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def main(parts: list[str]) -> None:
    unit, total = calibration(), 0.0
    for group, cases in GROUPS.items():
        file = FOLDER / f"{group}.json"
        records = json.loads(file.read_text()) if file.exists() else {}
        for name, run in cases.items():
            if parts and not any(part in name for part in parts):
                continue
            with TemporaryDirectory() as folder:
                began = time.process_time()
                outcome = run(Path(folder))
                seconds = time.process_time() - began
            total += seconds
            records[name] = record(outcome) | {"calibrations": round(seconds / unit, 1)}
            facts = {key: value for key, value in records[name].items() if key not in ("checks", "bound")}
            sys.stdout.write(f"{seconds:6.2f} s  {group}: {name}  {facts}\n")
        kept = {name: records[name] for name in cases if name in records}
        file.write_text(_written(kept))
    sys.stdout.write(f"{total:6.2f} s in all, of which {unit:.4f} s are one calibration\n")


if __name__ == "__main__":
    main(sys.argv[1:])
