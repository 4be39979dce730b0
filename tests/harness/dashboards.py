"""The dashboards of the chart, as code: cluster, queue, job and node.

`python -m harness.dashboards` writes them to helm/closeknit/files/dashboards, for Grafana's sidecar or by hand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

FOLDER = Path(__file__).parents[2] / "helm" / "closeknit" / "files" / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH = 24  # of Grafana's grid
HEIGHT = 7


@dataclass(frozen=True, slots=True)
class Query:
    """What a panel asks, in PromQL, and how each series is called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Plot:
    """One panel. `unit` is Grafana's name for it."""

    title: str
    says: str
    queries: Sequence[Query]
    unit: str = "short"
    stacked: bool = False
    number: bool = False
    """Whether the last value alone is shown."""


@dataclass(frozen=True, slots=True)
class PlotRow:
    """Panels side by side."""

    title: str
    plots: Sequence[Plot]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard; `variables` are named by what an admin chooses, each with the query of its values."""

    name: str
    title: str
    says: str
    rows: Sequence[PlotRow]
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Where it is."""
        return FOLDER / f"closeknit-{self.name}.json"


def _by(label: str, expression: str) -> Query:
    return Query(f"sum by ({label}) ({expression})", f"{{{{{label}}}}}")


def _quantile(of: float, histogram: str, by: str = "", legend: str = "") -> Query:
    labels = ", ".join(filter(None, ("le", by)))
    expression = f"histogram_quantile({of:g}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))"
    return Query(expression, legend or (f"{{{{{by}}}}}" if by else f"{of:.0%}"))


def _or_none(label: str, expression: str) -> Query:
    """By a label, those values of it that there are now."""
    return Query(
        f'sum by ({label}) ({expression}) > 0 or label_replace(vector(0), "{label}", "none", "", "")',
        f"{{{{{label}}}}}",
    )


CLUSTER = Board(
    "cluster",
    "closeknit / cluster",
    "GPUs, placements, faults, and the operator itself.",
    (
        PlotRow(
            "GPUs and jobs",
            (
                Plot(
                    "GPUs by state",
                    "Excluded: with their node. mig: in MIG mode. Unusable: broken, or not to be given.",
                    (_by("state", "closeknit_gpus"),),
                    stacked=True,
                ),
                Plot("Jobs by state", "TrainingJobs.", (_by("state", "closeknit_jobs"),), stacked=True),
                Plot(
                    "Nodes that get no job",
                    "Nodes with GPUs, by why they are left out.",
                    (_or_none("reason", "closeknit_excluded_nodes"),),
                    stacked=True,
                ),
            ),
        ),
        PlotRow(
            "Placement",
            (
                Plot(
                    "Predicted to ideal bandwidth",
                    "Mean over bookings of the last hour: 1 is what this cluster could give if it were empty.",
                    (
                        Query(
                            "sum(rate(closeknit_placement_quality_ratio_sum[1h])) "
                            "/ sum(rate(closeknit_placement_quality_ratio_count[1h]))",
                            "mean",
                        ),
                    ),
                    "percentunit",
                ),
                Plot(
                    "Domains that a gang spans",
                    "Mean over bookings of the last hour, by level: 1 is best.",
                    (
                        Query(
                            "sum by (level) (rate(closeknit_placement_domains_sum[1h])) "
                            "/ sum by (level) (rate(closeknit_placement_domains_count[1h]))",
                            "{{level}}",
                        ),
                    ),
                ),
                Plot(
                    "Largest gang that fits",
                    "GPUs inside one domain of a level; without a level: anywhere.",
                    (Query("max by (level) (closeknit_largest_gang_gpus)", "{{level}}"),),
                ),
                Plot(
                    "Free islands by size",
                    "NVLink islands of free GPUs, by how many GPUs each has.",
                    (_or_none("size", "closeknit_free_islands"),),
                    stacked=True,
                ),
                Plot(
                    "Free GPUs of partly used nodes",
                    "No gang of whole nodes can have them.",
                    (Query("sum(closeknit_free_gpus_of_partly_used_nodes)", "GPUs"),),
                ),
                Plot(
                    "Gangs by whether they got the planned GPUs",
                    "NotReported: nobody tells.",
                    (_by("result", "closeknit_verified_jobs"),),
                    stacked=True,
                ),
            ),
        ),
        PlotRow(
            "Faults and what they cost",
            (
                Plot(
                    "Runs that ended, per hour",
                    "By why.",
                    (_or_none("reason", "rate(closeknit_attempts_ended_total[$__rate_interval]) * 3600"),),
                ),
                Plot(
                    "Restarts per hour",
                    "By why the run had ended.",
                    (_or_none("reason", "rate(closeknit_job_restarts_total[$__rate_interval]) * 3600"),),
                ),
                Plot(
                    "GPU-hours lost per hour",
                    "By the cause. Starting: before a job's first run.",
                    (_or_none("reason", "rate(closeknit_lost_gpu_seconds_total[$__rate_interval])"),),
                    stacked=True,
                ),
                Plot(
                    "From a fault to the next run",
                    "The 90th percentile of each phase.",
                    (_quantile(0.9, "closeknit_restart_phase_seconds", "phase"),),
                    "s",
                ),
                Plot(
                    "Gangs that lack something",
                    "Jobs that hold GPUs, by the reason of their condition Degraded.",
                    (_or_none("reason", "closeknit_degraded_jobs"),),
                ),
                Plot(
                    "Fallbacks and other GPUs than planned",
                    "Per hour.",
                    (
                        _or_none("reason", "rate(closeknit_fallbacks_total[$__rate_interval]) * 3600"),
                        Query("sum(rate(closeknit_placement_mismatches_total[$__rate_interval])) * 3600", "Mismatch"),
                    ),
                ),
            ),
        ),
        PlotRow(
            "Operator",
            (
                Plot("Leaders", "One.", (Query("sum(closeknit_leader_status)", "leaders"),), number=True),
                Plot(
                    "Time of a decision",
                    "Over the whole queue, without writes.",
                    (
                        _quantile(0.5, "closeknit_scheduling_cycle_duration_seconds"),
                        _quantile(0.99, "closeknit_scheduling_cycle_duration_seconds"),
                    ),
                    "s",
                ),
                Plot(
                    "Lag of the event loop",
                    "The 99th percentile of each replica.",
                    (_quantile(0.99, "closeknit_event_loop_lag_seconds", "instance"),),
                    "s",
                ),
                Plot(
                    "Requests to the API server",
                    "Per second.",
                    (
                        Query(
                            "sum by (verb, code) (rate(closeknit_api_requests_total[$__rate_interval]))",
                            "{{verb}} {{code}}",
                        ),
                    ),
                    "reqps",
                ),
                Plot(
                    "Time of a request",
                    "The 99th percentile.",
                    (_quantile(0.99, "closeknit_api_request_duration_seconds", "verb"),),
                    "s",
                ),
                Plot(
                    "Silence of streams",
                    "Since the API server last said anything, the worst resource of each replica.",
                    (Query("max by (instance) (closeknit_reflector_last_event_age_seconds)", "{{instance}}"),),
                    "s",
                ),
                Plot(
                    "Unreadable objects, broken decisions",
                    "Nothing, where all is well.",
                    (
                        Query("sum(closeknit_unreadable_objects)", "unreadable objects"),
                        Query("sum(increase(closeknit_broken_decisions_total[1h]))", "broken decisions in 1 h"),
                    ),
                ),
                Plot(
                    "Memory of the operator",
                    "Resident.",
                    (Query("process_resident_memory_bytes and on (instance) closeknit_leader_status", "{{instance}}"),),
                    "bytes",
                ),
            ),
        ),
    ),
)

QUEUE = Board(
    "queue",
    "closeknit / queue",
    "What waits, why, and for how long.",
    (
        PlotRow(
            "What waits",
            (
                Plot(
                    "Waiting jobs by reason",
                    "As status.pending.reason says. Undecided: submitted just now.",
                    (
                        Query(
                            "sum by (reason) (closeknit_waiting_jobs) > 0 or sum(closeknit_waiting_jobs)", "{{reason}}"
                        ),
                    ),
                    stacked=True,
                ),
                Plot(
                    "GPUs that are asked for, and free ones",
                    "What waits does not fit, though there may be more free GPUs than it asks for.",
                    (
                        Query("sum(closeknit_waiting_gpus)", "asked for"),
                        Query('sum(closeknit_gpus{state="free"})', "free"),
                    ),
                ),
                Plot("The oldest wait", "Of all jobs.", (Query("max(closeknit_oldest_wait_seconds)", "oldest"),), "s"),
            ),
        ),
        PlotRow(
            "How long",
            (
                Plot(
                    "Time from submission to GPUs",
                    "Of jobs that got some.",
                    (
                        _quantile(0.5, "closeknit_job_wait_seconds"),
                        _quantile(0.95, "closeknit_job_wait_seconds"),
                    ),
                    "s",
                ),
                Plot(
                    "Time from GPUs to the first run",
                    "The 90th percentile of each phase.",
                    (_quantile(0.9, "closeknit_gang_start_phase_seconds", "phase"),),
                    "s",
                ),
                Plot(
                    "Decisions per minute",
                    "Placed, or refused for a reason that is news.",
                    (
                        Query(
                            'sum(rate(closeknit_placement_attempts_total{result="placed"}[$__rate_interval])) * 60',
                            "placed",
                        ),
                        _or_none(
                            "reason",
                            'rate(closeknit_placement_attempts_total{result="refused"}[$__rate_interval]) * 60',
                        ),
                    ),
                ),
            ),
        ),
    ),
)

# While the leader changes, two replicas may tell of the same ranks.
_RANKS = 'max by (uuid, rank, node) (closeknit_rank_info{namespace="$namespace", job="$job"})'


def _of_ranks(metric: str) -> Query:
    return Query(f"{_RANKS} * on (uuid) group_left () max by (uuid) ({metric})", "rank {{rank}} on {{node}}")


JOB = Board(
    "job",
    "closeknit / job",
    "One gang: which GPUs it has, and what they do. It needs closeknit_rank_info.",
    (
        PlotRow(
            "Where it runs",
            (
                Plot(
                    "Ranks", "Whose Pod is bound.", (Query(f"count(count by (rank) ({_RANKS}))", "ranks"),), number=True
                ),
                Plot("Ranks by node", "", (Query(f"count by (node) ({_RANKS})", "{{node}}"),), stacked=True),
            ),
        ),
        PlotRow(
            "What its GPUs do",
            (
                Plot("Load by rank", "", (_of_ranks("closeknit_gpu_utilization_ratio"),), "percentunit"),
                Plot("Memory by rank", "", (_of_ranks("closeknit_gpu_memory_used_bytes"),), "bytes"),
                Plot("Power by rank", "", (_of_ranks("closeknit_gpu_power_watts"),), "watt"),
                Plot("Temperature by rank", "", (_of_ranks("closeknit_gpu_temperature_celsius"),), "celsius"),
            ),
        ),
    ),
    {
        "namespace": "label_values(closeknit_rank_info, namespace)",
        "job": 'label_values(closeknit_rank_info{namespace="$namespace"}, job)',
    },
)


def _of_node(metric: str) -> Query:
    here = 'closeknit_agent_build_info{node="$node"}'
    return Query(f"{metric} * on (instance) group_left () {here}", "GPU {{gpu}}")


NODE = Board(
    "node",
    "closeknit / node",
    "One node, by its agent.",
    (
        PlotRow(
            "Its GPUs",
            (
                Plot(
                    "GPUs by health",
                    "As the agent read them last.",
                    (
                        Query(
                            "sum by (health) (closeknit_agent_gpus * on (instance) group_left () "
                            'closeknit_agent_build_info{node="$node"})',
                            "{{health}}",
                        ),
                    ),
                    stacked=True,
                ),
                Plot(
                    "Who has them",
                    "GPUs by job.",
                    (
                        Query(
                            "count by (namespace, job) "
                            '(max by (namespace, job, uuid) (closeknit_rank_info{node="$node"}))',
                            "{{namespace}}/{{job}}",
                        ),
                    ),
                    stacked=True,
                ),
            ),
        ),
        PlotRow(
            "What they do",
            (
                Plot("Load", "", (_of_node("closeknit_gpu_utilization_ratio"),), "percentunit"),
                Plot("Memory", "", (_of_node("closeknit_gpu_memory_used_bytes"),), "bytes"),
                Plot("Power", "", (_of_node("closeknit_gpu_power_watts"),), "watt"),
                Plot("Temperature", "", (_of_node("closeknit_gpu_temperature_celsius"),), "celsius"),
            ),
        ),
    ),
    {"node": "label_values(closeknit_agent_build_info, node)"},
)

BOARDS = (CLUSTER, QUEUE, JOB, NODE)


def built(board: Board) -> str:
    """Its JSON."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"closeknit-{board.name}")
        .description(board.says)
        .tags(["closeknit"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source"))
    )
    for name, query in board.variables.items():
        variable = dashboard.QueryVariable(name).label(name.capitalize()).query(query).datasource(SOURCE)
        made = made.with_variable(variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title))
        for panel in _panels(row):
            made = made.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"


def _panels(row: PlotRow) -> Iterator[Any]:
    across = min(len(row.plots), 4 if len(row.plots) % 4 == 0 else 3)
    for plot in row.plots:
        panel: Any = stat.Panel() if plot.number else timeseries.Panel()
        panel = panel.title(plot.title).description(plot.says).unit(plot.unit).datasource(SOURCE)
        panel = panel.height(HEIGHT).span(WIDTH // across).min(0)
        for number, query in enumerate(plot.queries):
            asked = prometheus.Dataquery().expr(query.expression).legend_format(query.legend)
            panel = panel.with_target(asked.ref_id(chr(ord("A") + number)))
        if not plot.number:
            options = common.VizLegendOptions().show_legend(True)
            options = options.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
            panel = panel.legend(options).fill_opacity(40 if plot.stacked else 0)
        if plot.stacked:
            panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        yield panel


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in BOARDS:
        each.file.write_text(built(each))
