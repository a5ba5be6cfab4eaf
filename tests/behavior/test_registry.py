import sys
from types import ModuleType

import pytest

from wng.behavior.registry import Registry, check_choice, nearest

ROUND, SQUARE = object(), object()


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Registry:
    module = ModuleType("own_shapes")
    module.square, module.text = SQUARE, "not a shape: text"
    monkeypatch.setitem(sys.modules, "own_shapes", module)
    return Registry("shape", {"round": ROUND, "square": "own_shapes:square"})


def test_parts_are_found_by_name_as_themselves_or_where_a_text_says(shapes: Registry) -> None:
    assert shapes.find("round") is ROUND
    assert shapes.find("square") is SQUARE
    assert shapes.find("own_shapes:square") is SQUARE
    assert list(shapes) == ["round", "square"]


def test_a_part_of_ones_own_is_assigned(shapes: Registry) -> None:
    mine = object()
    with pytest.raises(ValueError, match="no shape 'mine'"):
        shapes.check("mine")
    shapes["mine"] = mine
    shapes.check("mine")
    assert shapes.find("mine") is mine
    shapes["round"] = "own_shapes:square"  # and may replace one
    assert shapes.find("round") is SQUARE


def test_nothing_is_imported_before_it_is_used() -> None:
    lazy = Registry("shape", {"far": "no_such_module_anywhere:far"})
    lazy.check("far")
    lazy.check("another_missing_module:x")
    with pytest.raises(ValueError, match="the shape 'far' cannot be imported: No module named"):
        lazy.find("far")


@pytest.mark.parametrize("name", ["rond", "Round", "", 3, None, ["round"]])
def test_an_unknown_name_gets_the_nearest_in_one_sentence(shapes: Registry, name) -> None:
    for call in (shapes.check, shapes.find):
        with pytest.raises(ValueError, match=r"there is no shape .*: did you mean '") as error:
            call(name)
        assert "Give your own as module:name." in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["own_shapes:missing", "own_shapes:", ":x", ".a:x", "no such:x"])
def test_what_cannot_be_imported_is_one_sentence(shapes: Registry, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be imported") as error:
        shapes.find(name)
    assert "\n" not in str(error.value)


def test_nearest_ignores_case_and_always_answers() -> None:
    assert nearest("ROUDN", ["square", "Round"]) == "Round"
    assert nearest("", ["square", "round"]) in ("square", "round")


def test_choices() -> None:
    check_choice("kind", "a", ("a", "b"))
    with pytest.raises(ValueError, match="kind 'c' is unknown: did you mean"):
        check_choice("kind", "c", ("a", "b"))
    with pytest.raises(ValueError, match="kind '1' is unknown"):
        check_choice("kind", 1, ("a", "b"))
