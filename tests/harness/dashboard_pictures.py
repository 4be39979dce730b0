"""`make pictures`: the rows of the dashboards, drawn from what a real Prometheus answers to their very queries.

An operator and an agent are scraped for some minutes, while jobs come, run, fail, wait and end on the four nodes of a
real control plane. There is no Grafana here, for none comes by the registries that a build may use. So colours and
fonts are ours; titles, queries, legends and values are the dashboards'.
"""

import itertools
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from harness.chart import NAMESPACE
from harness.dashboards import BOARDS, Board, Plot, PlotRow
from harness.install import free_port
from harness.machines import AGENT_SERVICE_ACCOUNT, agent_pod_name
from harness.operator_bed import DRA_NODES, ON_PLUGIN_PROFILE, PLUGIN_NODES, Bed, standing
from harness.prometheus import Prometheus, bring, running

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
LOADED_S = 240
STEP_S = 2
VARIABLES = {"$__rate_interval": "1m", "[1h]": "[5m]", "$namespace": "team-a", "$node": "gpu-1", "$job": "pretrain"}
WIDTH, HEIGHT, LEGEND, GAP = 400, 130, 46, 14
COLOURS = ("#3574b8", "#e0752d", "#3f9142", "#c4162a", "#8f5bb5", "#8a6d3b", "#d46a9f", "#707070", "#b0a100", "#2aa1a8")
MOST_SERIES = 6
"""In a legend: of more the largest."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: (seconds, value)."""

    name: str
    points: Sequence[tuple[float, float]]


def drawn(row: PlotRow, series: Mapping[str, Sequence[Series]]) -> str:
    """A row of panels as SVG; `series` by the titles of its panels."""
    across = min(len(row.plots), 4 if len(row.plots) % 4 == 0 else 3)
    down = math.ceil(len(row.plots) / across)
    tall = HEIGHT + LEGEND + 34
    width, height = across * (WIDTH + GAP) + GAP, down * (tall + GAP) + 36
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
        f'<text x="{GAP}" y="22" font-size="14" font-weight="bold">{escape(row.title)}</text>',
    ]
    for number, plot in enumerate(row.plots):
        x, y = GAP + (number % across) * (WIDTH + GAP), 34 + (number // across) * (tall + GAP)
        parts.append(f'<g transform="translate({x} {y})">{_panel(plot, series[plot.title], tall)}</g>')
    return "\n".join((*parts, "</svg>")) + "\n"


def _panel(plot: Plot, series: Sequence[Series], tall: int) -> str:
    parts = [
        f'<rect width="{WIDTH}" height="{tall}" rx="3" fill="#ffffff" stroke="#d8d9da"/>',
        f'<text x="10" y="18" font-weight="bold">{escape(plot.title)}</text>',
    ]
    if plot.number:
        last = series[0].points[-1][1] if series else math.nan
        parts.append(f'<text x="{WIDTH / 2}" y="{tall / 2 + 16}" font-size="44" text-anchor="middle" fill="#3f9142">')
        return "".join((*parts, f"{_told(last, plot.unit)}</text>"))
    shown = sorted(series, key=lambda each: -max(value for _, value in each.points))[:MOST_SERIES]
    lines = _stacked(shown) if plot.stacked else [each.points for each in shown]
    top = _round_up(max((value for points in lines for _, value in points), default=0))
    begin = min((points[0][0] for points in lines), default=0.0)
    end = max((points[-1][0] for points in lines), default=1.0)
    for share in (0, 0.5, 1):
        height = 30 + HEIGHT * (1 - share)
        parts.append(f'<path d="M56 {height:.0f}H{WIDTH - 10}" stroke="#e6e6e6"/>')
        parts.append(
            f'<text x="52" y="{height + 4:.0f}" text-anchor="end" fill="#555">{_told(top * share, plot.unit)}</text>'
        )
    scale = (WIDTH - 66) / max(end - begin, 1)
    for number in reversed(range(len(lines))):
        path = " ".join(
            f"{'L' if place else 'M'}{56 + (at - begin) * scale:.1f} {30 + HEIGHT * (1 - value / top):.1f}"
            for place, (at, value) in enumerate(lines[number])
        )
        colour = COLOURS[number % len(COLOURS)]
        if plot.stacked:
            first, last = (56 + (at - begin) * scale for at in (lines[number][0][0], lines[number][-1][0]))
            area = f"{path} L{last:.1f} {30 + HEIGHT} L{first:.1f} {30 + HEIGHT} Z"
            parts.append(f'<path d="{area}" fill="{colour}"/>')
        else:
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    for number, each in enumerate(shown):
        x, y = 12 + number % 3 * 128, 30 + HEIGHT + 18 + number // 3 * 16
        parts.append(f'<rect x="{x}" y="{y - 8}" width="9" height="9" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{x + 13}" y="{y}" fill="#333">{escape(each.name[:19])}</text>')
    return "".join(parts)


def _stacked(series: Sequence[Series]) -> list[list[tuple[float, float]]]:
    below: dict[float, float] = {}
    found = []
    for each in series:
        found.append([(at, value + below.get(at, 0.0)) for at, value in each.points])
        below |= dict(found[-1])
    return found


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if value <= step * size * 1.0001)


def _told(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 180 else f"{value / 60:.3g} min"
    if unit == "bytes":
        return f"{value / 2**20:.4g} MiB" if value < 2**30 else f"{value / 2**30:.3g} GiB"
    suffix = {"watt": " W", "celsius": " °C", "reqps": "/s"}.get(unit, "")
    return f"{value:.4g}{suffix}"


def asked(prometheus: Prometheus, plot: Plot, begin: float, end: float) -> list[Series]:
    """What a panel shows."""
    found = []
    for query in plot.queries:
        expression = query.expression
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        limits = {"start": f"{begin:.0f}", "end": f"{end:.0f}", "step": str(STEP_S)}
        for each in prometheus.get("query_range", query=expression, **limits)["result"]:
            points = [(float(at), float(value)) for at, value in each["values"]]
            known = [(at, value) for at, value in points if math.isfinite(value)]
            if known:
                found.append(Series(_legend(query.legend, each["metric"]), known))
    return found


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    name = pattern
    for label in ("verb", "code", "reason", "state", "phase", "level", "size", "result", "instance", "rank", "node",
                  "gpu", "health", "namespace", "job"):  # fmt: skip
        name = name.replace(f"{{{{{label}}}}}", labels.get(label, ""))
    return name.strip() or "all"


def load(bed: Bed, ends_at: float) -> None:
    """Jobs of several sizes come one after the other; some of their Pods fail, others succeed."""
    chance, numbers = random.Random(7), itertools.count()  # noqa: S311 - the same pictures each time
    bed.begin("team-a")
    bed.submit("pretrain", gpus=8, gpu={"products": ["NVIDIA-H200"]}, restart={"limit": 50})
    while time.time() < ends_at:
        if len(bed.names("trainingjobs")) < 9:
            binding = {} if chance.random() < 0.5 else {"gpu": {"binding": "DRA"}}
            size = chance.choice((1, 2, 4, 4, 8, 8, 16, 64))
            bed.submit(f"train-{next(numbers)}", gpus=size, restart={"limit": 5}, **binding)
        live = [pod for pod in bed.live_pods() if chance.random() < 0.2]
        for pod in live[:1]:
            bed.finish(pod, "fail" if pod.startswith("pretrain") or chance.random() < 0.5 else "succeed")
        over = [job["metadata"]["name"] for job in bed.all("trainingjobs") if _is_over(job)]
        for name in over[:1]:
            bed.delete("trainingjob", name)
        time.sleep(2)


def _is_over(job: Mapping[str, Any]) -> bool:
    return job.get("status", {}).get("state") in {"Succeeded", "Failed"}


def configured(folder: Path, ports: Sequence[int]) -> Path:
    """Of a Prometheus on the same machine, where no token is asked for."""
    targets = {"targets": [f"127.0.0.1:{port}" for port in ports]}
    job = {"job_name": "closeknit", "honor_labels": True, "static_configs": [targets]}
    path = folder / "prometheus.yaml"
    path.write_bytes(msgspec.json.encode({"global": {"scrape_interval": "2s"}, "scrape_configs": [job]}))
    return path


def with_agent(bed: Bed) -> int:
    """The port of an agent of gpu-1."""
    port, pod = free_port(), agent_pod_name("gpu-1")
    kubeconfig = bed.cluster.service_account_kubeconfig(NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=pod)
    source = ("--source=simulated", f"--profile={ON_PLUGIN_PROFILE}", "--node=gpu-1")
    command = str(Path(sys.executable).parent / "closeknit-agent")
    bed.cluster.start_program(
        "agent-gpu-1", command, *source, f"--kubeconfig={kubeconfig}", f"--metrics-address=127.0.0.1:{port}"
    )
    return port


def pictures(prometheus: Prometheus, begin: float, end: float) -> Iterator[tuple[Path, str]]:
    """Each row of each dashboard, and its file."""
    for board in BOARDS:
        for row in board.rows:
            yield (
                file_of(board, row),
                drawn(row, {plot.title: asked(prometheus, plot, begin, end) for plot in row.plots}),
            )


def file_of(board: Board, row: PlotRow) -> Path:
    """Where its picture is."""
    words = "-".join(row.title.lower().replace(",", "").split())
    return PICTURES / f"dashboard-{board.name}-{words}.svg"


def main() -> None:
    """Draws them all."""
    with standing(Bed, PLUGIN_NODES, DRA_NODES) as bed, tempfile.TemporaryDirectory() as folder:
        for name in (*PLUGIN_NODES, *DRA_NODES):
            rack = {"metadata": {"labels": {"example.com/rack": f"r{name[-1]}"}}}
            bed.change("node", name, rack, namespaced=False)
        levels = [{"name": "rack", "nodeLabel": "example.com/rack"}]
        spec = {"levels": levels, "fabric": {"levelBandwidthGBps": {"rack": 50}}}
        kind = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "default"}}
        bed.cluster.apply({**kind, "spec": spec})
        with running(bring(), configured(Path(folder), [bed.port, with_agent(bed)])) as prometheus:
            begin = time.time()
            load(bed, begin + LOADED_S)
            for file, text in pictures(prometheus, begin, time.time()):
                file.write_text(text)
                print(file.relative_to(PICTURES.parents[1]))


if __name__ == "__main__":
    main()
