"""Sign ambiguities: against the claims of [ATV21] and brute force."""

import numpy as np

from neurecover import simulate
from neurecover.certificate.signs.ambiguity import sign_ambiguities
from neurecover.models import Network


def test_claim_4_8_is_found() -> None:
    for d, k, seed in ((2, 3, 0), (4, 4, 1), (5, 9, 2), (8, 20, 3)):
        first, second = simulate.sign_ambiguous(d, k, random_state=seed)
        found = sign_ambiguities(first)
        assert found.complete
        assert not found.unique
        assert found.signs.tolist() == [[1] * k, [-1] * k]
        X = np.random.default_rng(seed).standard_normal((200, d))
        for network in found.networks:
            np.testing.assert_allclose(network(X), first(X), atol=1e-12)
        np.testing.assert_allclose(found.networks[1].W, second.W)


def test_every_listed_assignment_is_the_same_function_and_none_is_missed() -> None:
    # Two disjoint triples that each cancel, with biases: the sets are the unions of them, four in all.
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((2, 4)) for _ in range(2)]
    W = np.vstack([np.vstack([pair, -pair.sum(axis=0)]) for pair in rows] + [rng.standard_normal((1, 4))])
    network = Network(W, rng.standard_normal(7), np.ones((1, 7)), [0.3])
    found = sign_ambiguities(network)
    assert len(found.signs) == 4
    assert found.complete
    X = rng.standard_normal((300, 4))
    for other in found.networks:
        np.testing.assert_allclose(other(X), network(X), atol=1e-12)
    # Brute force over all 2^7 choices agrees.
    bits = (np.arange(128)[:, None] >> np.arange(7)) & 1
    assert np.count_nonzero(np.linalg.norm(bits @ W, axis=1) < 1e-9) == 4


def test_independent_units_and_generic_overcomplete_ones_are_determined() -> None:
    for d, k, p in ((6, 6, 1), (4, 9, 1), (3, 12, 2)):
        assert sign_ambiguities(simulate.teacher(d, k, p, random_state=d)).unique


def test_mirror_images_do_not_count() -> None:
    first, _ = simulate.sign_ambiguous(3, 5, random_state=0)
    for spec in ("sigmoid", "abs", "power(2)"):
        assert sign_ambiguities(Network(first.W, None, first.A, activation=spec)).unique
    leaky = Network(first.W, None, first.A, activation="leaky_relu(0.2)")
    assert len(sign_ambiguities(leaky).signs) == 2


def test_units_that_do_nothing_do_not_count() -> None:
    network = simulate.teacher(4, 3, random_state=0)
    W, b, A = np.vstack([network.W, np.zeros(4)]), np.append(network.b, 1.0), np.hstack([network.A, [[2.0]]])
    assert sign_ambiguities(Network(W, b, A)).unique
    A[0, 0] = 0.0
    assert sign_ambiguities(Network(W, b, A)).unique
