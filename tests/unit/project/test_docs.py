"""What the code calls things, docs/reference calls them, too: both lists are read here, in both directions."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.api import names
from harness import metrics_page

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")
NAMES_PAGE = ROOT / "docs/reference/names.md"
METRICS_PAGE = metrics_page.PAGE
RECORDED: set[str] = set()
"""Names of recording rules."""
CHART_PAGE = ROOT / "docs/reference/chart.md"
VALUES = ROOT / "helm/closeknit/values.yaml"


def in_code_marks(page: Path) -> set[str]:
    """Everything that a page has in backticks."""
    return set(re.findall(r"`([^`\n]+)`", page.read_text()))


def first_cells(page: Path) -> set[str]:
    """What the rows of a page's tables are about."""
    return set(re.findall(r"^\| `([^`]+)` \|", page.read_text(), re.MULTILINE))


def closed_lists() -> dict[str, list[str]]:
    """Every enum of the names by its own name, and the label keys that are constants."""
    kinds = [kind for kind in vars(names).values() if isinstance(kind, type) and issubclass(kind, StrEnum)]
    lists = {kind.__name__: [member.value for member in kind] for kind in kinds if kind is not StrEnum}
    keys = ("_LABEL", "_ANNOTATION", "_TAINT")
    return lists | {name: [value] for name, value in vars(names).items() if name.endswith(keys)}


def metric_names() -> set[str]:
    return {family.name for family in (*metrics_page.of_the_operator(), *metrics_page.of_an_agent())}


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of all values, lists and empty objects as wholes."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path


@pytest.mark.parametrize(("of", "values"), closed_lists().items(), ids=closed_lists())
def test_every_name_is_documented(of: str, values: list[str]) -> None:
    missing = set(values) - in_code_marks(NAMES_PAGE)
    assert not missing, f"docs/reference/names.md does not say what these of {of} mean"


def test_the_page_of_metrics_is_what_they_say_of_themselves() -> None:
    assert len(metric_names()) > 30
    text = METRICS_PAGE.read_text()
    assert metrics_page.page(text) == text, "run make generate"


def test_no_page_names_a_metric_that_is_not_there() -> None:
    known = metric_names()
    histograms = {each.name for each in metrics_page.of_the_operator() if each.type == "histogram"}
    known |= {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        named = set(re.findall(r"\bcloseknit_[a-z_]+[a-z]\b", page.read_text())) - RECORDED
        assert not named - known, page


def test_nothing_is_documented_that_is_not_there() -> None:
    sources = [path.read_text() for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    spelt = set(re.findall(r'"([^"\n]+)"', "\n".join(sources)))
    known = {value for values in closed_lists().values() for value in values} | spelt
    assert not first_cells(NAMES_PAGE) - known


def test_every_value_of_the_chart_is_documented() -> None:
    said = first_cells(CHART_PAGE)
    values = list(leaves(yaml.safe_load(VALUES.read_text())))
    assert [value for value in values if not any(value == each or value.startswith(f"{each}.") for each in said)] == []
    assert [each for each in said if not any(value == each or value.startswith(f"{each}.") for value in values)] == []


def test_defaults_of_the_chart_are_those_of_the_page() -> None:
    values = yaml.safe_load(VALUES.read_text())
    for path, shown in re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", CHART_PAGE.read_text(), re.MULTILINE):
        value = values
        for key in path.split("."):
            value = value[key]
        assert yaml.safe_load(shown) == value, path


def test_the_label_that_lifts_the_lists_is_the_one_that_the_policy_reads() -> None:
    policy = (ROOT / "helm/closeknit/templates/admission/_admitted.tpl").read_text()
    assert f"labels[?'{names.UNRESTRICTED_TEMPLATES_LABEL}']" in policy
