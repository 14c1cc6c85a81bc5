"""Networks with one hidden layer, with several, or with a first layer below any function; files and derivatives."""

from neurecover.models.composite import Composite, Or, Polynomial, Upper
from neurecover.models.deep import DeepNetwork, network_of
from neurecover.models.derivatives import (
    are_biases,
    free_directions,
    free_directions_among,
    free_parameters,
    jacobian,
    parameters,
    with_parameters,
)
from neurecover.models.formats.files import read_npz, write_npz
from neurecover.models.formats.loading import Model, check_network, from_arrays, load
from neurecover.models.layered import Layered, mirror_of
from neurecover.models.network import Network, replace_arrays
from neurecover.models.rounding import term_sizes
from neurecover.models.student import Student, as_network, as_student, away_from_samples, with_constant

__all__ = [
    "Composite",
    "DeepNetwork",
    "Layered",
    "Model",
    "Network",
    "Or",
    "Polynomial",
    "Student",
    "Upper",
    "are_biases",
    "as_network",
    "as_student",
    "away_from_samples",
    "check_network",
    "free_directions",
    "free_directions_among",
    "free_parameters",
    "from_arrays",
    "jacobian",
    "load",
    "mirror_of",
    "network_of",
    "parameters",
    "read_npz",
    "replace_arrays",
    "term_sizes",
    "with_constant",
    "with_parameters",
    "write_npz",
]
