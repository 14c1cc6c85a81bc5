"""CP decomposition of a third-order tensor by alternating least squares, several random starts.

T ≈ Σᵢ uᵢ ⊗ vᵢ ⊗ tᵢ: with two factors fixed the third is a linear least-squares problem, and the three are solved in
turn. The experiments of [GKLW19, §4] use this diagonalisation; `joint_diagonalise` is faster and more reliable.

Every run starts from the singular vectors of a random combination of the slices; for symmetric slices U = V up to
signs. If the start consists of Gaussian columns, or of orthonormal ones independent of the tensor, two columns often
end at the same component. Measured with 32 components of the null space of [GKLW19, Fig. 2] at n = 10,000, one such
start in ten finds all components, and ten in ten of the starts used here.
"""

from dataclasses import dataclass

import numpy as np

PROGRESS = 1e-9  # a run has converged if a round lowers the squared error by a smaller share than this


@dataclass(frozen=True)
class Components:
    """T ≈ Σᵢ uᵢ ⊗ vᵢ ⊗ tᵢ with one component per row of U, V (both of unit rows) and T.

    `relative_error` is ‖T − Σ …‖_F / ‖T‖_F.
    """

    U: np.ndarray
    V: np.ndarray
    T: np.ndarray
    relative_error: float


def alternating_least_squares(
    tensor: np.ndarray, rank: int, rng: np.random.Generator, *, restarts: int = 10, max_iterations: int = 500
) -> Components:
    """Return the best of `restarts` runs on a tensor (d₁, d₂, d₃)."""
    tensor = np.asarray(tensor, dtype=float)
    d3 = tensor.shape[2]
    flat = tensor.reshape(-1, d3)
    # An orthonormal basis of the third axis preserves every squared error and has at most d₁d₂ directions.
    basis, small = np.eye(d3), tensor
    if d3 > flat.shape[0]:
        basis, R = np.linalg.qr(flat.T)
        small = R.T.reshape(*tensor.shape[:2], -1)
    elif d3 > 1:
        _, values, right = np.linalg.svd(flat, full_matrices=False)
        basis = right[values > 1e-13 * values[0]].T
        small = tensor @ basis
    best = min((_run(small, rank, rng, max_iterations) for _ in range(restarts)), key=lambda found: found[0])
    loss, (U, V, T) = best
    scale = float(np.linalg.norm(tensor))
    norms = np.linalg.norm(U, axis=0) * np.linalg.norm(V, axis=0)
    return Components(
        (U / np.linalg.norm(U, axis=0)).T,
        (V / np.linalg.norm(V, axis=0)).T,
        (basis @ (T * norms)).T,
        float(np.sqrt(max(loss, 0.0)) / scale),
    )


def _run(
    tensor: np.ndarray, rank: int, rng: np.random.Generator, max_iterations: int
) -> tuple[float, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    factors = _start(tensor, rank, rng)
    total = float(np.vdot(tensor, tensor))
    unfoldings = [np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1) for axis in range(3)]
    before = np.inf
    loss = total
    for _ in range(max_iterations):
        for axis in (2, 0, 1, 2):
            first, second = (factors[other] for other in range(3) if other != axis)
            gram = (first.T @ first) * (second.T @ second)
            khatri_rao = (first[:, None, :] * second[None, :, :]).reshape(-1, rank)
            right = unfoldings[axis] @ khatri_rao
            ridge = 1e-12 * np.trace(gram) * np.eye(rank)  # two columns may become parallel during the iteration
            factors[axis] = np.linalg.solve(gram + ridge, right.T).T
            if axis < 2:
                factors[axis] /= np.maximum(np.linalg.norm(factors[axis], axis=0), 1e-300)
        # At the least-squares solution of the last factor ‖T − T̂‖² = ‖T‖² − ⟨T, T̂⟩.
        loss = total - float(np.vdot(right, factors[2]))
        if before - loss <= PROGRESS * max(loss, 1e-15 * total):
            break
        before = loss
    return loss, (factors[0], factors[1], factors[2])


def _start(tensor: np.ndarray, rank: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return singular vectors of a random combination of the slices, and Gaussian columns beyond them."""
    left, _, right = np.linalg.svd(tensor @ rng.standard_normal(tensor.shape[2]), full_matrices=False)
    spare = max(rank - left.shape[1], 0)
    U, V = (
        np.hstack([vectors[:, :rank], rng.standard_normal((len(vectors), spare)) / np.sqrt(len(vectors))])
        for vectors in (left, right.T)
    )
    return [U, V, np.zeros((tensor.shape[2], rank))]
