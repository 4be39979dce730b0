"""Warnings that hold for some versions of NCCL: told where they hold, else with the versions for which they do."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from closeknit.api.text.nccl_version import ALL, NcclVersion
from closeknit.api.trainingjob_status import MAX_WARNINGS
from closeknit.launch.environment.environment import Environment, environment
from closeknit.launch.environment.nccl import left_alone
from closeknit.launch.environment.nccl_versions import READ_BY, read_by
from closeknit.launch.environment.user_overrides import _RESERVED, depends_on_nccl
from closeknit.lifecycle.booking.booked_placement import environment_status
from unit.launch.environment.test_environment import RDMA, gang
from unit.launch.environment.test_user_overrides import HARMFUL

NETWORK_PAGE = Path(__file__).parents[4] / "docs" / "network.md"


def made(name: str, value: str | None, version: str | None = None, **facts: Any) -> Environment:
    entry = {"name": name, "valueFrom": {"fieldRef": {}}} if value is None else {"name": name, "value": value}
    found = gang(8, 8, trainer={"env": [entry]}, **{**RDMA, **facts})
    return environment(replace(found, nccl_version=NcclVersion.parse(version)), 0)


def harms(*arguments: Any, **facts: Any) -> list[str]:
    return [hazard.why for hazard in made(*arguments, **facts).hazards]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.28.9", (2, 28, 9)),
        ("2.30.7+cuda13.0", (2, 30, 7)),
        ("2.29", (2, 29, 0)),
        ("", None),
        (None, None),
        ("2", None),
        ("v2.28.9", None),
        ("2.28.9.1", None),
        ("2.2899999", None),
        ("-2.28.9", None),
        ("٢.28.9", None),
        ("2.28.9" + " " * 5000, None),
        ("2.28\x1b[31m", (2, 28, 0)),
    ],
)
def test_a_version_is_read_from_whatever_is_told(text: str | None, expected: tuple[int, ...] | None) -> None:
    assert NcclVersion.parse(text) == expected


# Each of its facts by the source of the tag: name, value, the last version that it is not told for, the first that it
# is, and what else a gang needs.
BY_VERSION: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("NCCL_IB_GID_INDEX", "3", "2.20.5", "2.21.5", {}),
    ("NCCL_CUMEM_ENABLE", "0", "2.18.6", "2.19.1", {}),
    ("NCCL_IB_DATA_DIRECT", "0", "2.26.6", "2.27.3", {"has_data_direct": True}),
    ("NCCL_NET_GDR_LEVEL", "SYS", "2.26.6", "2.27.3", {"has_c2c": True}),
    ("NCCL_MULTI_RANK_GPU_ENABLE", "1", "2.29.7", "2.30.3", {}),
    ("NCCL_RUN_DIAGNOSTICS", "1", "2.30.7", "2.31.2", {}),
    ("NCCL_IB_HCA", "=mlx5_0::0:0", "2.30.3", "2.29.7", {}),
]


@pytest.mark.parametrize(("name", "value", "harmless", "harmful", "facts"), BY_VERSION, ids=lambda each: str(each)[:30])
def test_a_harm_is_told_in_the_versions_that_do_it(
    name: str, value: str, harmless: str, harmful: str, facts: dict[str, Any]
) -> None:
    assert harms(name, value, harmless, **facts) == []
    (why,) = harms(name, value, harmful, **facts)
    assert not why.startswith("with NCCL")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("NCCL_IB_GID_INDEX", "3", "with NCCL 2.21 and later: the index differs"),
        ("NCCL_RUN_DIAGNOSTICS", "1", "with NCCL 2.31 and later: every pair"),
        ("NCCL_IB_HCA", "=mlx5_0::0:0", "with NCCL before 2.30: rail and plane"),
        ("NCCL_ALGO", "Ring", "it overrides a choice"),
    ],
)
def test_while_the_version_is_unknown_a_harm_says_for_which_it_holds(name: str, value: str, expected: str) -> None:
    (why,) = harms(name, value)
    assert why.startswith(expected)


def test_a_harm_of_all_versions_is_told_in_all() -> None:
    for version in ("2.18.1", "2.28.9", "2.32.6", "3.0.1"):
        assert len(harms("NCCL_ALGO", "Ring", version)) == 1
    assert harms("NCCL_IB_HCA", "=mlx5_0:1:0:0", "2.29.7") == []  # it reads the port, and not what follows
    (told,) = harms("NCCL_RUN_DIAGNOSTICS", None, "2.32.3")
    assert told.startswith("every pair")


@pytest.mark.parametrize(
    ("name", "value", "reads", "does_not"),
    [
        ("NCCL_IB_RESILIENCY_PORT_FAILOVER", "1", "2.29.7", "2.29.3"),
        ("NCCL_NETDEVS_POLICY", "ALL", "2.28.3", "2.27.7"),
        ("NCCL_RAS_ENABLE", "0", "2.24.3", "2.23.4"),
        ("NCCL_PAT_ENABLE", "1", "2.31.2", "2.32.3"),
        ("NCCL_SYM_CTAS", "8", "2.31.2", "2.32.3"),
        ("NCCL_HIER_CE_COLL_NUM_CTX", "2", "2.31.2", "2.30.7"),
        ("NCCL_IB_RAIL_POLICY", "CX9:FLIP", "2.32.3", "2.31.2"),
        ("NCCL_CTA_POLICY", "ZERO", "2.29.2", "2.28.9"),
        ("NCCL_CTA_POLICY", "2", "2.28.3", "2.27.7"),
        ("NCCL_CTA_POLICY", "1", "2.27.3", "2.26.6"),
        ("NCCL_PAT_ENABLE", None, "2.23.4", "2.22.3"),
    ],
)
def test_what_the_pods_nccl_does_not_read_is_told_and_is_no_harm(
    name: str, value: str | None, reads: str, does_not: str
) -> None:
    assert made(name, value, reads).warnings == () == made(name, value).warnings
    old = made(name, value, does_not)
    (told,) = old.warnings
    assert old.hazards == ()
    assert f"its Pods have NCCL {does_not}, to which this means nothing: " in str(told)
    assert str(read_by(name, value)) in str(told)


def test_a_variable_that_the_pods_nccl_lacks_is_not_left_to_it() -> None:
    def left(version: str) -> tuple[str, ...]:
        return left_alone(replace(gang(8), nccl_version=NcclVersion.parse(version)))

    assert ("NCCL_CUMEM_ENABLE" in left("2.17.1"), "NCCL_CUMEM_ENABLE" in left("2.18.1")) == (False, True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("NCCL_ALGO", False), ("EPOCHS", False), ("NCCL_CUMEM_ENABLE", True), ("NCCL_IB_HCA", True),
     ("NCCL_IB_GID_INDEX", True), ("NCCL_IB_RESILIENCY_PORT_FAILOVER", True)],
)  # fmt: skip
def test_whose_words_wait_for_the_version(name: str, expected: bool) -> None:
    assert depends_on_nccl({name: {"name": name, "value": "1"}}) is expected


def test_every_range_is_of_versions_that_there_are() -> None:
    for name, reads in READ_BY.items():
        assert reads is not ALL and str(reads).startswith("NCCL "), name
        assert reads.since is None or reads.before is None or reads.since < reads.before, name


def test_the_page_has_the_same_versions_as_the_table() -> None:
    """Rows of docs/network.md that begin with a variable, and say `from 2.x` or `gone in 2.x`."""
    rows = re.findall(r"^\| (`NCCL_[^|]*) \| ([^|]*) \|", NETWORK_PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 8
    seen = 0
    for names, words in rows:
        told = re.search(r"(from|gone in) (2\.[0-9]+(?:\.[0-9]+)?)", words)
        for name in re.findall(r"`(NCCL_[A-Z0-9_]+)`", names):
            if told is None or name not in READ_BY:
                continue
            bound = READ_BY[name].since if told[1] == "from" else READ_BY[name].before
            assert bound == NcclVersion.parse(told[2]), name
            seen += 1
    assert seen >= 12


def test_a_template_with_every_variable_is_told_as_much_as_a_status_holds() -> None:
    values = {**dict.fromkeys(_RESERVED, "9"), **dict.fromkeys(READ_BY, "1"), **dict(HARMFUL)}
    every = [{"name": name, "value": value} for name, value in values.items()]
    of = replace(gang(8, 8, trainer={"env": every}, **RDMA), nccl_version=NcclVersion(2, 17, 1))
    told = environment_status(environment(of, 0))
    assert told is not None
    assert len(told.warnings) == MAX_WARNINGS
    assert re.fullmatch(r"and [0-9]+ more", str(told.warnings[-1]))
