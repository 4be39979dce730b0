"""Pods that take the place of others: what the meeting point makes of both, and when an old one steps back."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from closeknit.sidecar.gang.hub import HEARD_FOR_S, Hub
from closeknit.sidecar.gang.own_name import LOOKS_EVERY_S, OwnName
from closeknit.sidecar.gang.protocol import Command, Order, Phase, Report
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import Settings

NOTHING: Mapping[int, int] = {}
GIVEN = '{"index": 0, "size": 3, "host": "h", "port": 29200, "key": "ab", "replacement": 1}'


def hub_of(size: int, run: int, replaced: Mapping[int, int] = NOTHING) -> Hub:
    """That of a gang that runs."""
    hub = Hub(size, run, 0.0, replaced=replaced)
    for index in range(size):
        hub.hear(Report(index, Phase.RUNNING, run), 0.0)
    return hub


def test_who_joins_calls_for_a_run_and_begins_it_with_the_others() -> None:
    hub = hub_of(3, 4)
    hub.hear(Report(2, Phase.WAITING, -1, "new", 1), 100.0)
    assert hub.order(0) == hub.order(1) == Order(Command.RESET, 4)
    assert hub.order(2).command is Command.STAY
    assert not hub.release(100.0)
    for index in range(2):
        hub.hear(Report(index, Phase.WAITING, 4, f"w{index}"), 101.0)
    assert hub.release(101.0)
    assert [hub.order(index) for index in range(3)] == [
        Order(Command.GO, 5, "w0"),
        Order(Command.GO, 5, "w1"),
        Order(Command.GO, 5, "new"),
    ]


@pytest.mark.parametrize(
    ("phase", "command"),
    [
        (Phase.RUNNING, Command.RESET),
        (Phase.FAILED, Command.GIVE_UP),
        (Phase.WAITING, Command.GIVE_UP),
        (Phase.OVER, Command.STAY),
        (Phase.LEAVING, Command.STAY),
    ],
)
def test_a_replaced_pod_counts_for_nothing(phase: Phase, command: Command) -> None:
    hub = hub_of(2, 0)
    hub.hear(Report(1, Phase.WAITING, -1, "new", 1), 20.0)
    old = Report(1, phase, 9, "old")
    hub.hear(old, 21.0)
    assert hub.is_outlived(old)
    assert hub.order_to_outlived(old).command is command
    assert (hub.run, hub.is_lost) == (0, False)
    assert hub.order(1) == Order(Command.STAY)


def test_no_run_begins_while_a_replaced_pod_may_meet_it() -> None:
    hub = hub_of(2, 0)
    hub.hear(Report(1, Phase.WAITING, -1, "new", 1), 20.0)
    hub.hear(Report(0, Phase.WAITING, 0, "w"), 20.0)
    hub.hear(Report(1, Phase.RUNNING, 0), 21.0)
    assert not hub.release(22.0)
    hub.hear(Report(1, Phase.WAITING, 0, "old"), 23.0)
    assert hub.release(23.0), "it has left the old run, and begins no other"


def test_one_that_has_gone_silent_is_not_waited_for() -> None:
    hub = hub_of(2, 0)
    hub.hear(Report(1, Phase.RUNNING, 0), 19.0)
    hub.hear(Report(1, Phase.WAITING, -1, "new", 1), 20.0)
    hub.hear(Report(0, Phase.WAITING, 0, "w"), 20.0)
    assert not hub.release(20.0), "it was heard a second ago"
    assert hub.release(19.0 + HEARD_FOR_S)


def test_a_new_meeting_point_learns_the_run_and_knows_who_was_replaced_before() -> None:
    hub = Hub(3, replaced={1: 2})
    hub.hear(Report(0, Phase.WAITING, -1, "new", 1), 0.0)
    hub.hear(Report(1, Phase.WAITING, 3, "old", 1), 0.0)
    hub.hear(Report(2, Phase.RUNNING, 3), 0.0)
    assert hub.order(2) == Order(Command.RESET, 3)
    hub.hear(Report(2, Phase.WAITING, 3, "w"), 1.0)
    assert not hub.release(1.0), "the old Pod of the second place does not count"
    hub.hear(Report(1, Phase.WAITING, 3, "v", 2), 1.0)
    assert hub.release(1.0)
    assert hub.run == 4


def test_what_is_known_of_replaced_pods_outlives_the_containers(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    hub = Hub(3, 4, None, 1, {0: "w"}, {1: 2})
    folder.keep(hub)
    found = folder.hub(3, 4, {1: 1, 2: 1})
    assert (found.run, found.began, found.quick, found.released) == (4, None, 1, {0: "w"})
    assert found.replaced == {1: 2, 2: 1}
    (tmp_path / "gang").write_text("[]")
    assert folder.hub(3, 0, {2: 1}).replaced == {2: 1}


def test_the_settings_of_a_new_meeting_point() -> None:
    settings = Settings.parse(GIVEN, '{"0":1,"2":3}')
    assert (settings.replacement, settings.replaced) == (1, {0: 1, 2: 3})
    assert Settings.parse(GIVEN).replaced == {}


@pytest.mark.parametrize("replaced", ["[]", '{"a":1}', '{"1":[]}', "{", "[" * 4000, '{"1":1}' * 600])
def test_settings_that_cannot_be_read_are_refused(replaced: str) -> None:
    with pytest.raises(ValueError, match="CLOSEKNIT_GANG"):
        Settings.parse(GIVEN, replaced)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The clock, and the addresses that the name has."""
    world: dict[str, object] = {"now": 0.0, "found": ["10.0.0.1"]}

    def getaddrinfo(*_: object, **__: object) -> list[tuple[object, ...]]:
        found = world["found"]
        if not isinstance(found, list):
            raise OSError("no name server")
        return [(socket.AF_INET, None, None, "", (address, 1)) for address in found]

    monkeypatch.setattr("time.monotonic", lambda: world["now"])
    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    return world


def looked(name: OwnName, names: dict[str, object], times: int, own: frozenset[str] = frozenset({"10.0.0.1"})) -> bool:
    for _ in range(times):
        names["now"] = float(str(names["now"])) + LOOKS_EVERY_S
        name.look(own)
        assert name._resolving is not None
        name._resolving.join()
    return name.is_others


def test_a_meeting_point_whose_name_means_another_pod_steps_back(names: dict[str, object]) -> None:
    name = OwnName("h", 1)
    assert not looked(name, names, 5)
    names["found"] = ["10.0.0.1", "10.0.0.2"]
    assert not looked(name, names, 5), "both, for a moment"
    names["found"] = ["10.0.0.2"]
    assert not looked(name, names, 2), "one answer is not enough"
    assert looked(name, names, 1)
    names["found"] = ["10.0.0.1"]
    assert not looked(name, names, 2)


def test_nothing_follows_from_no_answer_and_without_members(names: dict[str, object]) -> None:
    name = OwnName("h", 1)
    names["found"] = None
    assert not looked(name, names, 5)
    names["found"] = ["10.0.0.2"]
    assert not looked(name, names, 5, frozenset()), "how its members reach it is not known"
