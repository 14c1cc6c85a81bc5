"""What a check looks at, by name, in place of a whole case."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from neurecover.certificate import CertificateOptions, Evidence


def facts(**known: Any) -> Any:
    """Return a case of which only these things are known."""
    common = {"options": CertificateOptions(), "evidence": Evidence(None), "noisy": False, "n_samples": 100}
    common |= {"n_inputs": 2, "drawn": None, "to_others": np.inf}
    return SimpleNamespace(**(common | known))
