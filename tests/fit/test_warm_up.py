"""The first-order start: better than a random one, repeatable, and within its time."""

import numpy as np
import pytest

from neurecover.fit.samples import Samples
from neurecover.fit.warm_up import WarmUp, warm_up
from neurecover.solve import Deadline
from students import Shape, at, features, flat, network


@pytest.mark.parametrize(
    ("shape", "sizes", "factor"), [(Shape("relu", (8,)), (10, 5, 1), 0.3), (Shape("relu", (8, 6)), (6, 4, 3, 1), 0.6)]
)
def test_it_lowers_what_the_best_readout_leaves_and_repeats_itself(
    shape: Shape, sizes: tuple[int, ...], factor: float
) -> None:
    truth = network(sizes)
    X = np.random.default_rng(0).standard_normal((2_000, sizes[0]))
    samples, start = Samples(features(X), 3.0 * truth(X) + 7.0, 1), shape.student(d=sizes[0])
    warm = [
        warm_up(samples, start, np.random.default_rng(1), Deadline(), WarmUp(steps_per_unit=50.0)) for _ in range(2)
    ]
    np.testing.assert_array_equal(flat(warm[0]), flat(warm[1]))
    assert flat(warm[0]).dtype == np.float64
    assert not warm[0].theta.any()
    assert at(samples, warm[0]).loss < factor * at(samples, start).loss


def test_no_batch_is_begun_after_the_deadline() -> None:
    start = Shape("relu", (4,)).student()
    samples = Samples(features(np.random.default_rng(0).standard_normal((100, 4))), np.ones((100, 1)), 1)
    same = warm_up(samples, start, np.random.default_rng(0), Deadline.after(0.0))
    np.testing.assert_allclose(flat(same), flat(start), rtol=1e-6)
