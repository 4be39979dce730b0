"""A noun has one meaning: public classes and files have names of their own, but where a convention repeats them."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src/closeknit", "operator/src/closeknit", "node-agent/src/closeknit")
# One for each program, or for each command of the command line.
FILES = {"main", "metrics", "command"}
CLASSES: set[str] = set()
MOST_FOLDERS = 6  # that one task touches
NEW_VERDICT = "A policy of the queue"


def places() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """(class name -> the modules that define it, file name -> the folders that have it)."""
    classes, files = defaultdict(list), defaultdict(list)
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            where = path.relative_to(ROOT / source).as_posix()
            if path.stem not in {"__init__", "__main__"}:
                files[path.stem].append(where)
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].append(where)
    return classes, files


def test_a_name_stands_in_one_place() -> None:
    classes, files = places()
    assert {name: where for name, where in classes.items() if len(where) > 1 and name not in CLASSES} == {}
    assert {name: where for name, where in files.items() if len(where) > 1 and name not in FILES} == {}


def test_what_is_repeated_by_convention_is_repeated() -> None:
    classes, files = places()
    assert {name for name in FILES if len(files[name]) < 2} == set()
    assert {name for name in CLASSES if len(classes[name]) < 2} == set()


def test_the_recipes_name_files_that_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = {path for path in re.findall(r"`([\w./-]+\.(?:py|md|yaml|toml))`", text) if "/" in path}
    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_no_recipe_touches_more_than_six_folders_but_a_new_verdict() -> None:
    _, *recipes = re.split(r"^### ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    folders = {
        recipe.partition("\n")[0]: {
            path if (ROOT / path).is_dir() else path.rpartition("/")[0]
            for path in re.findall(r"`((?:crds|operator|node-agent)/src/[\w./-]+)`", recipe)
        }
        for recipe in recipes
    }
    assert len(folders) > 10
    assert [recipe for recipe, touched in folders.items() if len(touched) > MOST_FOLDERS] == [NEW_VERDICT]
