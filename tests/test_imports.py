"""A package imports only packages below it, cli > bench > jobs > models > strategies > launch, and there are no cycles."""

import ast
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

ORDER = ("launch", "strategies", "models", "jobs", "bench", "cli")
ROOT = Path(__file__).parents[1]
FILES = [path.relative_to(ROOT) for package in ORDER for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {file.with_suffix("").parts[: -1 if file.name == "__init__.py" else None]: file for file in FILES}


def imported(file: Path) -> list[list[str]]:
    """The modules of tfdist that a file imports, also inside functions and for type checking only."""
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    froms = [f"{node.module}.{each.name}" for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    plain = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    return [name.split(".")[1:] for name in chain(froms, plain) if name.startswith("tfdist.")]


def test_a_package_imports_only_packages_below_it():
    upward = [(str(file), ".".join(name)) for file in FILES for name in imported(file)
              if ORDER.index(name[0]) > ORDER.index(file.parts[0])]  # fmt: skip
    assert upward == []


def test_a_measured_program_imports_only_what_tasks_use():
    assert {name[0] for name in imported(Path("package/measure.py"))} == {"launch", "models"}


def test_subpackages_and_modules_of_a_package_have_no_import_cycle():
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for file in FILES:
        unit = file.with_suffix("").parts[:2]
        graph.setdefault(unit, set()).update({tuple(name[:2]) for name in imported(file)} - {unit})
    assert tuple(TopologicalSorter(graph).static_order())  # a cycle raises CycleError


def module(name: list[str]) -> tuple[str, ...]:
    """The module that has an imported name, or is it."""
    return next(parts for end in range(len(name), 0, -1) if (parts := tuple(name[:end])) in MODULES)


def test_modules_have_no_import_cycle():
    graph = {importer: {module(name) for name in imported(file)} - {importer} for importer, file in MODULES.items()}
    assert tuple(TopologicalSorter(graph).static_order())
