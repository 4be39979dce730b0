"""The dashboards of the chart are what their code makes, and ask for metrics that there are."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from harness.dashboard_pictures import PICTURES, file_of
from harness.dashboards import BOARDS, FOLDER, Board, built
from harness.metrics_page import of_an_agent, of_the_operator
from harness.prometheus import Programs


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_each_file_is_what_its_code_makes(board: Board) -> None:
    assert board.file.read_text() == built(board), "run make generate"


def test_there_are_no_others() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(board.file for board in BOARDS)


def test_queries_name_metrics_that_there_are() -> None:
    families = [*of_the_operator(), *of_an_agent()]
    known = {each.name for each in families}
    known |= {f"{each.name}_{part}" for each in families for part in ("bucket", "sum", "count")}
    asked = {
        name
        for board in BOARDS
        for text in (*_expressions(board), *board.variables.values())
        for name in re.findall(r"\bcloseknit_\w+", text)
    }
    assert asked <= known
    told = {family.name for family in of_the_operator()} - {"closeknit_build_info", "closeknit_rank_info"}
    untold = {name for name in told if not any(name in text for board in BOARDS for text in _expressions(board))}
    # A panel would say the same as another one's.
    assert untold == {"closeknit_nodes", "closeknit_silent_agents", "closeknit_ranks", *ONLY_FOR_ALERTS}


ONLY_FOR_ALERTS = {
    "closeknit_lemons",
    "closeknit_api_writes_total",
    "closeknit_reflector_relists_total",
    "closeknit_reflector_errors_total",
}


def _expressions(board: Board) -> list[str]:
    return [query.expression for row in board.rows for plot in row.plots for query in plot.queries]


def test_each_row_is_shown_and_no_picture_is_left_over() -> None:
    page = (PICTURES.parent / "dashboards.md").read_text()
    files = [file_of(board, row) for board in BOARDS for row in board.rows]
    assert sorted(PICTURES.glob("dashboard-*.svg")) == sorted(files)
    assert all(f"](pictures/{file.name})" in page for file in files)
    for board in BOARDS:
        for row in board.rows:
            drawn = file_of(board, row).read_text()
            assert all(f">{escape(plot.title)}<" in drawn for plot in row.plots), "run make pictures"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_panel_asks_the_data_source_that_is_chosen(board: Board) -> None:
    panels = [panel for panel in json.loads(built(board))["panels"] if panel["type"] != "row"]
    assert len(panels) == sum(len(row.plots) for row in board.rows)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert len({panel["title"] for panel in panels}) == len(panels)


def test_while_the_leader_changes_a_job_is_shown_once(programs: Programs, tmp_path: Path) -> None:
    """Two replicas tell of its ranks for a moment, and one of them does not know yet that a rank has moved."""
    told = [("a", "0", "gpu-a"), ("a", "1", "gpu-b"), ("b", "0", "gpu-a"), ("b", "1", "gpu-c")]
    series = [
        f'closeknit_rank_info{{instance="{replica}", namespace="team-a", job="train", node="n1", rank="{rank}", '
        f'uuid="{uuid}"}}'
        for replica, rank, uuid in told
    ]
    rate = "closeknit_gpu_utilization_ratio"
    series += [f'{rate}{{instance="n1", gpu="{gpu}", uuid="gpu-{uuid}"}}' for gpu, uuid in enumerate("abc")]
    job, node = (board for board in BOARDS if board.name in {"job", "node"})
    shown = {
        plot.title: plot.queries[0].expression for board in (job, node) for row in board.rows for plot in row.plots
    }
    expected = {
        "Ranks": [("{}", 2)],
        "Ranks by node": [('{node="n1"}', 3)],
        "Load by rank": [
            ('{node="n1", rank="0", uuid="gpu-a"}', 1),
            ('{node="n1", rank="1", uuid="gpu-b"}', 1),
            ('{node="n1", rank="1", uuid="gpu-c"}', 1),
        ],
        "Who has them": [('{job="train", namespace="team-a"}', 3)],
    }
    tests = [_asked(shown[title], samples) for title, samples in expected.items()]
    case = {"input_series": [{"series": each, "values": "1x5"} for each in series], "promql_expr_test": tests}
    (tmp_path / "cases.yaml").write_text(json.dumps({"tests": [{"interval": "1m", **case}]}))
    assert "SUCCESS" in programs.check("test", "rules", "cases.yaml", cwd=tmp_path)


def _asked(expression: str, samples: list[tuple[str, int]]) -> dict[str, Any]:
    for variable, value in {"$namespace": "team-a", "$job": "train", "$node": "n1"}.items():
        expression = expression.replace(variable, value)
    return {
        "expr": expression,
        "eval_time": "1m",
        "exp_samples": [{"labels": labels, "value": value} for labels, value in samples],
    }
