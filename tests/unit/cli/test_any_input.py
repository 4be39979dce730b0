"""Whatever a file holds, `closeknit plan` answers or refuses in one line."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from closeknit.cli.main import app
from harness.big_cluster import objects

EXAMPLE = Path(__file__).parents[3] / "examples" / "tensor-4.yaml"
JOB: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
# A device-plugin node and a DRA node with their topologies, slices and Pods.
CLUSTER: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": [*objects(2), {**JOB, "spec": JOB["spec"]}]}
CLUSTER["items"][-1] = {**JOB, "metadata": {"name": "stored"}}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**64, 10**30]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "1Ki", "GPU-0", "Required", "X", "\x1b[2J"]
    ),
)
KEYS = st.one_of(st.text(max_size=4), st.sampled_from(["name", "spec", "0", "<<", "$", "a.b[0]"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
QUIET = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ways(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to everything inside a value."""
    inner: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, dict):
        inner = iter(value.items())
    elif isinstance(value, list):
        inner = iter(list(enumerate(value))[:3])  # the rest is alike
    for step, each in inner:
        yield (*above, step)
        yield from ways(each, (*above, step))


JOB_WAYS, CLUSTER_WAYS = (
    list(ways(JOB)),
    list(ways({"items": []}))
    + [("items", index, *way) for index, item in enumerate(CLUSTER["items"]) for way in ways(item)],
)


def changed(document: dict[str, Any], way: tuple[str | int, ...], change: str, value: Any) -> dict[str, Any]:
    """The document with one value replaced, removed, or joined by another field."""
    new = copy.deepcopy(document)
    holder: Any = new
    for step in way[:-1]:
        holder = holder[step]
    if change == "remove":
        del holder[way[-1]]
    elif change == "add" and isinstance(holder, dict):
        holder["extra"] = value
    else:
        holder[way[-1]] = value
    return new


def check(folder: Path, job: bytes, cluster: bytes) -> None:
    (folder / "job").write_bytes(job)
    (folder / "cluster").write_bytes(cluster)
    result = CliRunner().invoke(
        app, ["plan", "-f", str(folder / "job"), "--cluster", str(folder / "cluster"), "-ojson"]
    )
    assert result.exit_code in (0, 2, 3), result.exception
    assert isinstance(result.exception, SystemExit | None), result.exception
    if result.exit_code == 2:
        assert result.stdout == "" and len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith(f"closeknit: {folder}/")
        assert result.stderr.rstrip("\n").isprintable()
    else:
        assert result.stderr == ""
        assert json.loads(result.stdout)["fits"] is (result.exit_code == 0)


CHANGES = st.sampled_from(["replace", "remove", "add"])


@QUIET
@given(way=st.sampled_from(JOB_WAYS), change=CHANGES, value=VALUES, is_json=st.booleans())
def test_any_change_of_a_job(
    tmp_path: Path, way: tuple[str | int, ...], change: str, value: Any, is_json: bool
) -> None:
    check(tmp_path, written(changed(JOB, way, change, value), is_json), json.dumps(CLUSTER).encode())


@QUIET
@given(way=st.sampled_from(CLUSTER_WAYS), change=CHANGES, value=VALUES, is_json=st.booleans())
def test_any_change_of_a_cluster(
    tmp_path: Path, way: tuple[str | int, ...], change: str, value: Any, is_json: bool
) -> None:
    check(tmp_path, EXAMPLE.read_bytes(), written(changed(CLUSTER, way, change, value), is_json))


def written(document: Any, is_json: bool) -> bytes:
    return (json.dumps(document) if is_json else yaml.dump(document, Dumper=yaml.CSafeDumper)).encode()


@QUIET
@given(data=st.data(), is_json=st.booleans())
def test_any_cut_and_any_garbage(tmp_path: Path, data: st.DataObject, is_json: bool) -> None:
    job, cluster = written(JOB, is_json), written({**CLUSTER, "items": CLUSTER["items"][:3]}, is_json)
    whole = data.draw(st.sampled_from([job, cluster]))
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 50)))
    broken = whole[:begin] + data.draw(st.one_of(st.binary(max_size=8), st.text(max_size=8).map(str.encode)))
    broken += data.draw(st.sampled_from([b"", whole[end:]]))
    check(tmp_path, broken if whole is job else job, broken if whole is cluster else cluster)
