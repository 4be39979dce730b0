"""The tables of docs/reference/metrics.md: what /metrics of operator and agent shows, from its HELP texts.

`python -m harness.metrics_page` writes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from closeknit.agent.metrics import GpuMetrics
from closeknit.agent.sources.simulated import SimulatedSource, load_profile
from closeknit.controller.gauges import ranks
from closeknit.controller.process import Process
from closeknit.runtime.address import Address
from faults.memory_api import MemoryApi
from faults.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
PREFIX = "closeknit_"
BEGIN = "<!-- metrics: written by `make generate` from their HELP texts -->\n"
END = "<!-- end of metrics -->\n"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, as a query names it (a histogram without its suffixes)."""

    name: str
    type: str
    labels: tuple[str, ...]
    help_text: str

    @property
    def row(self) -> str:
        """Its row of the table."""
        return f"| `{self.name}` | {self.type} | {', '.join(self.labels)} | {self.help_text} |"


def of_the_operator() -> list[Family]:
    """All that an operator may show, in order of names."""
    metrics = Process(MemoryApi(Store()), Address("127.0.0.1", 0), None).metrics
    rank_info = Family(ranks.NAME, "gauge", ranks.LABELS, ranks.HELP)
    return sorted([*_families(metrics.registry), rank_info], key=lambda each: each.name)


def of_an_agent() -> list[Family]:
    """All that an agent may show, in order of names."""
    source = SimulatedSource(load_profile("pcie-8"), "node-1")
    return sorted(_families(GpuMetrics(source).registry), key=lambda each: each.name)


def _families(registry: CollectorRegistry) -> Iterator[Family]:
    for collector in registry._collector_to_names:
        for family in collector.collect():
            if family.name.startswith(PREFIX):
                name = f"{family.name}_total" if family.type == "counter" else family.name
                labels: tuple[str, ...] = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
                yield Family(name, family.type, tuple(labels), family.documentation)


def tables() -> Iterator[str]:
    """Both in Markdown."""
    for title, families in (("The operator", of_the_operator()), ("An agent", of_an_agent())):
        yield from (f"### {title}", "", "| metric | type | labels | says |", "|---|---|---|---|")
        yield from (each.row for each in families)
        yield ""


def page(text: str) -> str:
    """The page with today's tables."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{chr(10).join(tables())}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
