"""The page of scenarios by rule, docs/scenarios.md: `python -m scenarios.index` writes it, as `make generate` does."""

from pathlib import Path

import yaml

from scenarios.rules import Rules

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.yaml"))
PAGE = FOLDER.parents[1] / "docs/scenarios.md"
HEAD = """# Scenarios by rule

Each rule of placement and the scenario files that show it: a picture of a cluster, a job, and where it goes or why it
does not. `make generate` writes this page from `tests/scenarios`. Why: [0004](decisions/0004-place.md).
"""


def shown() -> dict[Rules, list[str]]:
    """Names of the files that show each rule, in order. Raises KeyError of a rule that there is not."""
    of = {rule.word: rule for rule in Rules}
    found: dict[Rules, list[str]] = {rule: [] for rule in Rules}
    for file in FILES:
        for word in yaml.safe_load(file.read_text())["shows"]:
            found[of[word]].append(file.stem)
    return found


def page() -> str:
    """The text of docs/scenarios.md."""
    lines, part = [HEAD], ""
    for rule, names in shown().items():
        if rule.value.part != part:
            part = rule.value.part
            lines += ["", f"## {part}", "", "| rule | scenarios |", "|---|---|"]
        links = ", ".join(f"[{name}](../tests/scenarios/{name}.yaml)" for name in names)
        lines.append(f"| {rule.value.sentence} | {links} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
