"""Every rule of placement has a scenario, and every scenario says which rules it shows."""

import yaml

from scenarios.clusters import EXAMPLES
from scenarios.index import FILES, PAGE, page, shown
from scenarios.rules import Rules

# What it refuses is the network's matter, no rule of placement.
OTHERS = {"refused-unknown-traffic-class"}


def test_every_rule_has_a_scenario() -> None:
    assert [rule.word for rule, names in shown().items() if not names] == []


def test_every_scenario_shows_rules_that_there_are() -> None:
    words = {rule.word for rule in Rules}
    said = {file.stem: yaml.safe_load(file.read_text()).get("shows", []) for file in FILES}
    assert {name: unknown for name, named in said.items() if (unknown := set(named) - words)} == {}
    assert {name for name, named in said.items() if not named} == OTHERS


def test_every_example_of_a_cloud_has_a_scenario() -> None:
    used = {yaml.safe_load(file.read_text())["cluster"].get("levels by") for file in FILES}
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} <= used


def test_the_page_of_scenarios_is_generated() -> None:
    assert PAGE.read_text() == page(), "run: make generate"
