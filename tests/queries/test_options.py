"""The options that `extract` is given reach the places that use them."""

import numpy as np

import neurecover as nr
from neurecover.queries.box.options import BoxOptions
from neurecover.queries.deep.options import DeepOptions
from neurecover.queries.lines.options import LineOptions
from neurecover.queries.options import QueryOptions
from neurecover.queries.saturating.options import SaturatingOptions
from neurecover.queries.shallow.options import ShallowOptions
from query_networks import a_network


def queries(network: nr.Network | nr.DeepNetwork, d: int, options: QueryOptions | None = None) -> int:
    found = nr.extract(nr.oracle(network, d, random_state=0), random_state=0, options=options)
    assert found.n_queries is not None
    return found.n_queries


def test_the_certificate_queries_as_many_points_as_it_is_told() -> None:
    network = a_network(0, 6, 5)
    usual, more = queries(network, 6), queries(network, 6, QueryOptions(held_out=10, distances=(0.3, 1.0)))
    assert more - usual == 2 * 10 - 3 * 8


def test_every_folder_reads_its_own_options() -> None:
    rng = np.random.default_rng(1)
    straight, smooth = a_network(0, 6, 5), nr.simulate.teacher(6, 4, activation="tanh", random_state=0)
    layers = [(rng.standard_normal((4, 5)), np.zeros(4)), (rng.standard_normal((3, 4)), np.zeros(3))]
    deep = nr.DeepNetwork([*layers, (rng.standard_normal((1, 3)), np.zeros(1))])
    usual = {5: queries(deep, 5), 6: queries(straight, 6)}
    assert queries(straight, 6, QueryOptions(box=BoxOptions(places=9))) == usual[6] + 2 * 3  # each is asked twice
    assert queries(straight, 6, QueryOptions(lines=LineOptions(arm=1.0 / 12.0))) != usual[6]
    assert queries(straight, 6, QueryOptions(shallow=ShallowOptions(held_out=20))) == usual[6] + 3 * 4
    assert queries(deep, 5, QueryOptions(deep=DeepOptions(held_out_extremes=160))) == usual[5] + 10
    assert queries(smooth, 6, QueryOptions(saturating=SaturatingOptions(held_out=20))) == queries(smooth, 6) + 4 * 4
