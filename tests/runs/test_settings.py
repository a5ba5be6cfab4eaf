import numpy as np
import pytest

from wng.runs.settings import check_seed


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "0", None])
def test_seeds(seed) -> None:
    assert check_seed(np.int64(7)) == 7
    with pytest.raises(ValueError, match="seed must be a whole number from 0 to 4294967295"):
        check_seed(seed)
