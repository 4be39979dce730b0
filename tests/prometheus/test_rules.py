"""The alerts of the chart: what promtool says of them, and that each is tested and explained."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.metrics_page import of_an_agent, of_the_operator
from harness.prometheus import Programs

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "helm/closeknit/files/rules").glob("*.yaml"))
CASES = Path(__file__).parent / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "runbook.md"


def alerts() -> list[dict[str, Any]]:
    groups = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings as a site of Markdown makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_promtool_finds_no_fault_in_the_rules(programs: Programs) -> None:
    assert RULES
    for file in RULES:
        assert "SUCCESS" in programs.check("check", "rules", str(file))


def test_each_alert_fires_and_is_silent_as_its_cases_say(programs: Programs) -> None:
    assert "SUCCESS" in programs.check("test", "rules", CASES.name, cwd=CASES.parent)


def test_each_alert_has_a_case_that_fires_it_and_one_that_does_not() -> None:
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    names = {each["alert"] for each in alerts()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_each_alert_says_what_is_wrong_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert {*alert["annotations"]} == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor in anchors(RUNBOOK)


def test_the_rules_read_metrics_that_there_are() -> None:
    families = [*of_the_operator(), *of_an_agent()]
    known = {each.name for each in families}
    known |= {f"{each.name}_{part}" for each in families for part in ("bucket", "sum", "count")}
    for alert in alerts():
        assert not set(re.findall(r"\bcloseknit_\w+", alert["expr"])) - known, alert["alert"]


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    named = set(re.findall(r"^## (Closeknit\w+)$", RUNBOOK.read_text(), re.MULTILINE))
    assert named == {each["alert"] for each in alerts()}
