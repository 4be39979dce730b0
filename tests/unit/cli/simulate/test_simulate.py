"""`closeknit simulate`: what it prints, and what it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from typer.testing import CliRunner, Result

from closeknit.cli.main import app
from closeknit.cli.simulate import progress
from scenarios import manifests

HEADER = "arrival,duration,gpus"
TRACE = f"{HEADER}\n0,60,8\n10,30,8\n"
REQUIRED = ("arrival", "duration", "gpus")
CLUSTER = "\n---\n".join(
    yaml.safe_dump(each)
    for each in (
        manifests.cluster_topology("rack"),
        manifests.node("gpu-1", gpus=None, labels={"net.example/rack": "r1"}),
        manifests.node_topology("gpu-1", heartbeatTime="2026-11-21T12:00:00Z"),
        manifests.resource_slice("gpu-1"),
    )
)


def simulate(folder: Path, trace: str | bytes, *options: str, cluster: str = CLUSTER) -> Result:
    (folder / "trace").write_bytes(trace if isinstance(trace, bytes) else trace.encode())
    (folder / "cluster.yaml").write_text(cluster)
    command = ["simulate", str(folder / "trace"), "--cluster", str(folder / "cluster.yaml"), *options]
    return CliRunner().invoke(app, command)


def as_json(folder: Path, trace: str) -> dict[str, object]:
    result = simulate(folder, trace, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_people_are_told_waits_allocation_and_fragmentation(tmp_path: Path) -> None:
    result = simulate(tmp_path, TRACE)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 jobs in 10 s, the last gone after 90 s\n")
    assert "mean 25 s, half of them 0 s at most" in result.stdout
    assert "100.0% of 8 GPUs while jobs came" in result.stdout
    assert result.stderr == ""  # it was over at once


ELASTIC = f"{HEADER},minGPUs,defragment\n0,2000,4,,\n10,600,8,4,Planned\n"


def test_elastic_jobs_are_replayed_and_counted(tmp_path: Path) -> None:
    """The second begins with half of its GPUs after a minute; it grows once the first has gone."""
    result = simulate(tmp_path, ELASTIC)
    assert result.exit_code == 0, result.output
    assert "1 began with fewer GPUs, 0 shrank, 0 grew, 0 moved" in result.stdout
    found = as_json(tmp_path, ELASTIC)
    assert found["elastic"] == {"startedSmaller": 1, "shrunk": 0, "grown": 0}
    assert (found["moved"], found["endSeconds"]) == (0, 2000)


@pytest.mark.parametrize(
    ("cells", "column"), [("16,", "minGPUs"), ("0,", "minGPUs"), ("x,", "minGPUs"), (",Sometimes", "defragment")]
)
def test_a_size_or_a_move_that_cannot_be_is_told_with_its_column(tmp_path: Path, cells: str, column: str) -> None:
    result = simulate(tmp_path, f"{HEADER},minGPUs,defragment\n0,60,8,{cells}\n")
    assert result.exit_code == 2
    assert f"column {column}" in result.stderr


def test_without_a_terminal_a_long_replay_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "ELSEWHERE_S", 0.0)
    result = simulate(tmp_path, TRACE, "-o", "json")
    assert json.loads(result.stdout)["gpus"] == 8
    assert result.stderr.splitlines() == [f"jobs begun and ended: {done} of 4 after 0 s" for done in (1, 1, 3, 4)]


def test_programs_are_told_the_same(tmp_path: Path) -> None:
    found = as_json(tmp_path, TRACE)
    assert found["waits"] == {"meanSeconds": 25.0, "p50Seconds": 0.0, "p95Seconds": 50.0, "longestSeconds": 50.0}
    assert (found["allocated"], found["gpus"], found["neverBegun"]) == (1.0, 8, [])


def test_json_lines_and_csv_say_the_same(tmp_path: Path) -> None:
    lines = '{"arrival": 0, "duration": 60, "gpus": 8}\n\n{"gpus": 8, "arrival": 10, "duration": 30.0}\n'
    assert as_json(tmp_path, lines) == as_json(tmp_path, TRACE)
    windows = f"\ufeff{HEADER},tensor,nvlink\r\n0,60,8,,\r\n10, 30 ,8,1,Preferred\r\n"
    assert as_json(tmp_path, windows) == as_json(tmp_path, TRACE)


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    assert simulate(tmp_path, TRACE, "--plot", str(tmp_path / "a.svg")).exit_code == 0
    text = (tmp_path / "a.svg").read_text()
    ET.fromstring(text)  # noqa: S314 - our own
    assert "in one rack" in text
    assert text.count('class="line') == 3 + 1 + 3 + 6  # the last are keys of panels with several lines


def test_who_can_never_begin_is_told_with_the_line(tmp_path: Path) -> None:
    result = simulate(tmp_path, f"{HEADER},required\n0,60,8,\n1,60,16,\n2,60,1,zone\n")
    assert result.exit_code == 3
    words = " ".join(result.stdout.split())
    assert "- line 3, 16 GPUs: InsufficientGPUs: needs 16 GPUs; 8 are free on 1 node" in words
    assert "- line 4, 1 GPU: UnknownLevel" in words
    assert "locality 1 job of several GPUs 1.00 racks, 1.00 hosts each" in words


BAD = [
    ("nothing", "", "trace: has no jobs"),
    ("a header alone", f"{HEADER}\n", "trace: has no jobs"),
    ("no gpus", "arrival,duration\n0,1\n", "trace:1: column gpus: is required in the header"),
    ("an unknown column", f"{HEADER},cores\n", "trace:1: column cores: unknown; allowed: arrival, duration, gpus, "),
    ("a column twice", f"{HEADER},gpus\n", "trace:1: column gpus: is there twice"),
    ("a short line", f"{HEADER}\n0,60,8\n0,60\n", "trace:3: has 2 columns, the header 3"),
    ("a word", f"{HEADER}\n0,60,many\n", "trace:2: column gpus: is 'many'; expected a number"),
    ("an empty cell", f"{HEADER}\n0,,8\n", "trace:2: column duration: is required"),
    ("a negative arrival", f"{HEADER}\n-1,60,8\n", "trace:2: column arrival: is -1; expected 0 to 1000000000 seconds"),
    ("no duration", f"{HEADER}\n0,0,8\n", "trace:2: column duration: is 0; expected more than 0 and at most"),
    ("infinity", f"{HEADER}\n0,inf,8\n", "trace:2: column duration: is inf; expected a number"),
    ("not a number", f"{HEADER}\nnan,1,8\n", "trace:2: column arrival: is nan; expected a number"),
    ("no GPUs", f"{HEADER}\n0,60,0\n", "trace:2: column gpus: is 0; should be greater than or equal to 1"),
    ("too many GPUs", f"{HEADER}\n0,60,70000\n", "trace:2: column gpus: is 70000; should be less than or equal to"),
    ("absurdly many", f"{HEADER}\n0,60,{'9' * 5000}\n", "trace:2: column gpus: is '9999"),
    ("one and a half", f"{HEADER}\n0,60,1.5\n", "trace:2: column gpus: is 1.5; expected a whole number, or a part of"),
    ("no quantity", f"{HEADER},memory\n0,60,8,16 GB\n", "trace:2: column memory: is '16 GB'; expected a quantity such"),
    ("less than no CPU", f"{HEADER},cpu\n0,60,8,-4\n", "trace:2: column cpu: is '-4'; expected a quantity such as 4"),
    ("a wrong word", f"{HEADER},nvlink\n0,60,8,Yes\n", "trace:2: column nvlink: is 'Yes'; should be 'Required', "),
    ("half a group", f"{HEADER},tensor\n0,60,8,1.5\n", "trace:2: column tensor: is 1.5; should be a valid integer"),
    (
        "an uneven group",
        f"{HEADER},tensor\n0,60,8,3\n",
        "trace:2: column gpus: tensor x context x pipeline must divide ",
    ),
    (
        "a bad patience",
        f"{HEADER},patience\n0,60,8,ten\n",
        "trace:2: column patience: is 'ten'; write it like 30s or 10m or 1h30m",
    ),
    ("an open quotation", f'{HEADER}\n0,60,"8\n', "trace:2: is not valid CSV: unexpected end of data"),
    ("broken JSON", '{"arrival": 0\n', "trace:1: is not valid JSON: "),
    ("JSON of another kind", '{"arrival":0,"duration":1,"gpus":1}\n[]\n', "trace:2: expected a JSON object"),
    ("an unknown name", '{"arrival":0,"duration":1,"gpus":1,"gpu":2}\n', "trace:1: column gpu: unknown; allowed: "),
    ("a text", '{"arrival":0,"duration":1,"gpus":"8"}\n', "trace:1: column gpus: is '8'; expected a number"),
    ("a truth", '{"arrival":true,"duration":1,"gpus":8}\n', "trace:1: column arrival: is True; expected a number"),
    ("CPUs as a list", '{"arrival":0,"duration":1,"gpus":8,"cpu":[]}\n', "trace:1: column cpu: is a list; expected a"),
    ("depth", '{"cpu":' + "[" * 4000 + "\n", "trace:1: "),
    ("a long line", '{"cpu":"' + "9" * 5000 + '"}\n', "trace:1: has more than 4,096 characters"),
    ("no text", b"\xff\xfe\x00", "trace: is not UTF-8 text (byte 0)"),
]


@pytest.mark.parametrize(("trace", "refusal"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_trace_is_refused_in_one_line(tmp_path: Path, trace: str | bytes, refusal: str) -> None:
    result = simulate(tmp_path, trace)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    line = result.stderr.rstrip("\n").replace(f"{tmp_path}/", "")
    assert "\n" not in line
    assert line.startswith(f"closeknit: {refusal}")
    assert len(line) < 400


@pytest.mark.parametrize("missing", REQUIRED)
def test_what_is_required_is_named(tmp_path: Path, missing: str) -> None:
    job = json.dumps({name: 1 for name in REQUIRED if name != missing})
    assert simulate(tmp_path, job).stderr.endswith(f"trace:1: column {missing}: is required\n")


def test_a_bad_cluster_is_refused_as_plan_refuses_it(tmp_path: Path) -> None:
    result = simulate(tmp_path, TRACE, cluster=CLUSTER.replace("kind: NodeTopology", "kind: NodeTopologie"))
    assert result.exit_code == 2
    assert "is 'NodeTopologie'; allowed: ClusterTopology, NodeTopology, TrainingJob" in result.stderr


def test_a_cluster_without_gpus_is_refused(tmp_path: Path) -> None:
    result = simulate(tmp_path, TRACE, cluster=yaml.safe_dump(manifests.node("gpu-1")))
    assert result.exit_code == 2
    assert "cluster.yaml: has no node with GPUs" in result.stderr


def test_a_picture_that_cannot_be_written_is_told_before_anything_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("closeknit.cli.simulate.command.replay", None)
    result = simulate(tmp_path, TRACE, "--plot", str(tmp_path / "no" / "a.svg"))
    assert result.exit_code == 2
    assert "a.svg: cannot be written: No such file or directory" in result.stderr


@pytest.mark.parametrize("name", ["a.png", "a.svg.pdf"])
def test_a_picture_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    result = simulate(tmp_path, TRACE, "--plot", str(tmp_path / name))
    words = f"{name}: --plot writes SVG alone: give it a name that ends in .svg"
    assert (result.exit_code, words in result.stderr, (tmp_path / name).exists()) == (2, True, False)


def test_more_jobs_than_a_trace_may_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closeknit.cli.simulate.trace.MAX_JOBS", 1)
    assert "trace:3: is job 2; a trace has 1 at most: cut it" in simulate(tmp_path, TRACE).stderr


def test_jobs_that_wait_in_the_clusters_file_are_left_out(tmp_path: Path) -> None:
    waits = manifests.training_job("waits")
    found = simulate(tmp_path, TRACE, "-o", "json", cluster=f"{CLUSTER}\n---\n{yaml.safe_dump(waits)}")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["waits"]["longestSeconds"] == 50
