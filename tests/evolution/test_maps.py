"""Where the members of each generation ended, on disk and back."""

import numpy as np
import pytest

from wng.evolution.episodes import Episodes
from wng.evolution.maps import keep_map, read_maps


def episodes(seed: int, members: int = 5, steps: int = 3) -> Episodes:
    rng = np.random.default_rng(seed)
    finals = rng.normal(size=(members + 1, 4)).astype(np.float32)
    path = rng.normal(size=(steps, 4)).astype(np.float32)
    zeros = np.zeros(members + 1)
    nothing = np.zeros((members + 1, 0))
    return Episodes(zeros, zeros[:, None], zeros, finals, nothing, nothing, path)


def test_what_is_kept_comes_back_in_order(tmp_path) -> None:
    numbers = [3, 1, 10, 2, 100]
    for number in numbers:
        keep_map(tmp_path, number, episodes(number, steps=number))
    found = read_maps(tmp_path, until=100)
    assert [generation.number for generation in found] == sorted(numbers)
    for generation in found:
        kept = episodes(generation.number, steps=generation.number)
        # The members, without the policy at the center; positions come first in an observation.
        np.testing.assert_array_equal(generation.finals, kept.final_observations[:-1, :2])
        np.testing.assert_array_equal(generation.path, kept.path[:, :2])


def test_what_a_session_that_was_cut_off_left_is_not_shown(tmp_path) -> None:
    for number in (1, 2, 3):
        keep_map(tmp_path, number, episodes(number))
    assert [g.number for g in read_maps(tmp_path, until=2)] == [1, 2]
    keep_map(tmp_path, 3, episodes(77))  # and the next session writes over it
    np.testing.assert_array_equal(
        read_maps(tmp_path, until=3)[-1].finals, episodes(77).final_observations[:-1, :2]
    )


def test_other_files_do_not_matter(tmp_path) -> None:
    keep_map(tmp_path, 1, episodes(1))
    (tmp_path / "maps" / ".000002.safetensors.tmp").write_bytes(b"half")  # of a killed process
    (tmp_path / "maps" / "notes.txt").write_text("mine")
    assert len(read_maps(tmp_path, until=9)) == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_a_damaged_map_is_named(tmp_path, damage: str) -> None:
    for number in (1, 2):
        keep_map(tmp_path, number, episodes(number))
    path = tmp_path / "maps" / "000002.safetensors"
    raw = path.read_bytes()
    path.write_bytes({"cut": raw[:-4], "empty": b"", "other": b"hello"}[damage])
    with pytest.raises(ValueError, match=r"000002.safetensors is damaged: delete it"):
        read_maps(tmp_path, until=2)
    assert len(read_maps(tmp_path, until=1)) == 1


def test_no_maps_is_one_sentence(tmp_path) -> None:
    with pytest.raises(
        ValueError, match="has no maps: only runs of evolution strategies on wall tasks do"
    ):
        read_maps(tmp_path, until=5)
    keep_map(tmp_path, 6, episodes(0))
    with pytest.raises(ValueError, match="has no maps"):
        read_maps(tmp_path, until=5)
