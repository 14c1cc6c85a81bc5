"""Where random numbers come from.

Public functions take a `random_state`; everything inside takes a `numpy.random.Generator`. This file is the
one door between the two.
"""

from numbers import Integral
from zlib import crc32

import numpy as np

RandomStateLike = int | np.random.RandomState | np.random.Generator | None


def as_generator(random_state: RandomStateLike = None, purpose: str = "") -> np.random.Generator:
    """Return a Generator for an int, a RandomState, a Generator or None (fresh entropy).

    A Generator is returned as it is, so that successive calls go on along its stream. An int gives the same
    stream every time; a RandomState is advanced by one draw, which seeds the Generator.

    purpose names an independent stream of the same seed. A truth that is drawn from seed 0 and a random
    start that is drawn from seed 0 would otherwise be the same numbers, and the start would be the answer.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    stream = (crc32(purpose.encode()),) if purpose else ()
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, np.random.RandomState):
        entropy = random_state.randint(0, 2**32, size=4, dtype=np.uint32).tolist()
        return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=stream))
    if isinstance(random_state, Integral) and random_state >= 0:
        return np.random.default_rng(np.random.SeedSequence(int(random_state), spawn_key=stream))
    raise ValueError(
        "random_state must be a non-negative integer, a numpy Generator or RandomState, or None. "
        f"Got {random_state!r} instead."
    )
