"""Every reader of files, given odd ones: an answer or one line of refusal, and never a traceback."""

import contextlib
import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.topology import discover
from closeknit.agent.sources.fleet import load_fleet
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.source import SourceError
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.cli.main import app
from fuzz.good_objects import JOB, good_objects
from fuzz.hostile import hostile

FEW = 100  # files of each sort
MANY = 2_500  # of four sorts: 10,000
DUMP = Path(__file__).parents[1] / "fixtures" / "dumps" / "hgx-h200-2gpu-vm.json"
CLUSTER = {
    "apiVersion": "v1",
    "kind": "List",
    "metadata": {},
    "items": [each for some in good_objects().values() for each in some[:2]],
}
FLEET = {"nodes": [{"name": "a", "kubeconfig": "k", "profile": "hgx-h200", "faults": {}}]}
# What is bytes of no JSON or YAML at all, or costs more than it shows.
ODDITIES = (
    b"",
    b"\xff\xfe\x00",
    b"\x00" * 100,
    b"[" * 100_000,
    b"- " * 20_000,
    b"a: &a [" + b"x," * 5000 + b"]\nb: [" + b"*a," * 5000 + b"]",
    b"a: &a [*a]",
    b"a: &a {<<: *a}",
    b"? [a]\n: 1\n",
    b"!!python/object/apply:os.system ['exit 1']",
    b"--- \n...\n--- \n",
    b"%YAML 9.9\n---\n",
    b"a: .inf\nb: .nan\nc: 0x" + b"f" * 5000,
    b"{" * 5000 + b"}" * 5000,
)


def file_of(good: dict[str, Any], seed: int) -> bytes:
    """An odd file by chance, as JSON or as YAML."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    if seed < len(ODDITIES):
        return ODDITIES[seed]
    document = hostile(good, seed)
    if chance.random() < 0.5:
        return document
    try:
        return yaml.dump(json.loads(document), Dumper=yaml.CSafeDumper, allow_unicode=True).encode(errors="replace")
    except (ValueError, RecursionError, yaml.YAMLError):
        return document.replace(b'"', b"'", chance.randrange(3))  # flow style with something odd in it


def plan(folder: Path, job: bytes, cluster: bytes) -> None:
    (folder / "job").write_bytes(job)
    (folder / "cluster").write_bytes(cluster)
    command = ["plan", "-f", str(folder / "job"), "--cluster", str(folder / "cluster"), "-ojson"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in (0, 2, 3)
    if result.exit_code == 2:
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.rstrip("\n").isprintable()


def check_job(folder: Path, seed: int) -> None:
    plan(folder, file_of(copy.deepcopy(JOB), seed), json.dumps(CLUSTER).encode())


def check_cluster(folder: Path, seed: int) -> None:
    plan(folder, json.dumps(JOB).encode(), file_of(copy.deepcopy(CLUSTER), seed))


def check_dump(folder: Path, seed: int) -> None:
    file = folder / "dump.json"
    file.write_bytes(file_of(json.loads(DUMP.read_bytes()), seed))
    source = RecordedSource(file)
    try:
        readings = source.read()
    except SourceError as error:
        assert str(error).startswith("cannot read the dump ")
        return
    with contextlib.suppress(ValidationError):  # what no NodeTopology can hold: the agent says so, and tries again
        publication(discover(readings, source.method), NodeTopologyStatus(), 1, "1", "2026-11-21T12:00:00Z")


def check_fleet(folder: Path, seed: int) -> None:
    file = folder / "fleet.yaml"
    file.write_bytes(file_of(copy.deepcopy(FLEET), seed))
    try:
        load_fleet(file)
    except ValueError as error:
        assert "fleet" in str(error) or "profile" in str(error)


READERS = pytest.mark.parametrize("check", [check_job, check_cluster, check_dump, check_fleet])


@READERS
def test_odd_files_are_refused_in_one_line(check: Any, tmp_path: Path) -> None:
    for seed in range(FEW):
        check(tmp_path, seed)


@pytest.mark.long
@READERS
def test_ten_thousand_odd_files_are_refused_in_one_line(check: Any, tmp_path: Path) -> None:
    for seed in range(FEW, FEW + MANY):
        check(tmp_path, seed)
