"""Rules of the house, checked on the syntax tree of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from wng.evolution import axes as evolution_axes
from wng.experiments.toys import axes as toy_axes
from wng.policy_gradient import axes as gradient_axes

ROOT = Path(__file__).parent.parent / "src" / "wng"
MODULES = sorted(ROOT.rglob("*.py"))
# Each package imports only what stands before it; those on one line never import each other.
ORDER = (
    {"estimator"},
    {"behavior"},
    {"envs"},
    {"runs"},
    {"policy_gradient", "evolution"},
    {"agents"},
    {"execution"},
    {"experiments"},
    {"cli"},
)
LEVEL = {package: level for level, packages in enumerate(ORDER) for package in packages}
REGISTRIES = [
    getattr(module, name)
    for module in (gradient_axes, evolution_axes, toy_axes)
    for name in ("PROXIMITIES", "GEOMETRIES", "SEARCHES", "STEPS", "PARAMETERIZATIONS")
    if hasattr(module, name)
]
AXIS_VALUES = {name for registry in REGISTRIES for name in registry}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


def imports(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Modules of ours that are imported, and the names taken from them; not for type checkers."""
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "wng":
            names = [alias.name for alias in node.names]
            if node.module == "wng":
                yield from ((f"wng.{name}", []) for name in names)
            else:
                yield str(node.module), names
        elif isinstance(node, ast.Import):
            yield from ((a.name, []) for a in node.names if a.name.split(".")[0] == "wng")


def texts(node: ast.expr) -> Iterator[str]:
    """The strings of a constant, or of a tuple, list or set of constants."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from texts(element)


def test_the_registries_were_found() -> None:
    assert len(REGISTRIES) >= 8
    assert {"clip", "fisher", "trust_region", "novelty", "wasserstein-estimated"} <= AXIS_VALUES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_comparison_with_the_name_of_an_axis_value(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Compare):
            compared = {text for side in (node.left, *node.comparators) for text in texts(side)}
            assert not compared & AXIS_VALUES, f"line {node.lineno}: {ast.unparse(node)}"


def test_imports_follow_the_order() -> None:
    for path in MODULES:
        own = LEVEL.get(package_of(path))
        if own is None:  # wng/__init__.py re-exports
            continue
        for module, _ in imports(tree_of(path)):
            other = module.split(".")[1]
            allowed = other == package_of(path) or LEVEL[other] < own
            assert allowed, f"{name_of(path)} imports {module}"


def test_no_private_name_is_used_from_another_module() -> None:
    for path in MODULES:
        tree = tree_of(path)
        for module, names in imports(tree):
            private = [n for n in (*module.split("."), *names) if n.startswith("_")]
            assert not private, f"{name_of(path)} imports {private} of {module}"
        own = {node.name for node in ast.walk(tree) if isinstance(node, DEFINITIONS)}
        own |= {node.attr for node in ast.walk(tree) if is_own_attribute(node)}
        own |= {n.target.id for n in ast.walk(tree) if is_annotated_name(n)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                known = node.attr in own or node.attr in NAMED_TUPLE or is_foreign(node)
                assert known, f"{name_of(path)} line {node.lineno}: {ast.unparse(node)}"


DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}  # public, despite their names


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own_attribute(node: ast.AST) -> bool:
    """An assignment to self._x, in a class of this module."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def is_annotated_name(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def is_foreign(node: ast.Attribute) -> bool:
    """Private parts of other packages that have no public equivalent."""
    return ast.unparse(node) in ("ray._private", "os._exit", "_brax_envs()._envs")


def test_files_stay_short() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert not {name: lines for name, lines in lengths.items() if lines > 300}
