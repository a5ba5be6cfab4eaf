import numpy as np
import pytest

from wng.experiments.toys import joint as toys_joint
from wng.experiments.toys.settings import ToySettings


def test_cosine_by_hand() -> None:
    assert toys_joint.cosine(np.array([1.0, 0.0]), np.array([3.0, 4.0])) == pytest.approx(0.6)


def test_enough_basis_functions_find_the_natural_gradient() -> None:
    """In 3 dimensions 100 basis functions see everything."""
    found = {(a.num_basis, a.damping): a.cosine for a in toys_joint.alignments(ToySettings(dim=3))}
    euclidean = found[0, 0.0]
    assert found[100, 1e-3] > 0.99 > euclidean
