"""Input distributions by name, for the command line and for saved experiments: "laplace", "student(5)", …"""

import re
from dataclasses import fields

from neurecover.exceptions import did_you_mean
from neurecover.simulate import inputs
from neurecover.simulate.inputs import Distribution

NAMES: dict[str, type] = {
    "gaussian": inputs.Gaussian,
    "mixture": inputs.SymmetricMixture,
    "uniform": inputs.Uniform,
    "laplace": inputs.Laplace,
    "student": inputs.StudentT,
    "rademacher": inputs.Rademacher,
    "exponential": inputs.Exponential,
    "skewed": inputs.Skewed,
}


def distribution(spec: str | Distribution) -> Distribution:
    """Return the distribution named by spec, with parameters in parentheses: "student(8)" is StudentT(8.0).

    Without parentheses the parameters have their defaults. A distribution, or any callable
    (rng, n, d) → (n, d), is returned unchanged.
    """
    if callable(spec):
        return spec
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", spec) if isinstance(spec, str) else None
    if match is None or match[1].lower() not in NAMES:
        raise ValueError(
            f"An input distribution is one of {', '.join(NAMES)}, with numbers in brackets if it has any, "
            f"like 'student(5)'. Got {spec!r} instead.{did_you_mean(str(spec).partition('(')[0].lower(), NAMES)}"
        )
    kind = NAMES[match[1].lower()]
    try:
        parameters = [float(word) for word in (match[2] or "").split(",") if word.strip()]
        return kind(*parameters)
    except TypeError:
        allowed = len(fields(kind))
        most = f"at most {allowed} number{'s' if allowed > 1 else ''}" if allowed else "no numbers"
        raise ValueError(f"{match[1]} takes {most}. Got {spec!r} instead.") from None
    except ValueError as error:
        raise ValueError(f"{spec!r} names no input distribution: {error}") from None
