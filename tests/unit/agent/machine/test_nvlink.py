"""What links join, concluded from readings that are as awkward as real ones."""

from collections.abc import Sequence

import pytest

from closeknit.agent.discovery.machine.nvlink import fabric_ready, nvlink
from closeknit.agent.discovery.readings.readings import (
    FabricReading,
    GpuReading,
    LinkReading,
    PairReading,
    PciReading,
)
from closeknit.api.nodetopology import NvlinkPair
from closeknit.api.nodetopology_status import LinkDown

HIDDEN = "FFFFFFFF:FF:FF.0"
ZERO_UUID = "0" * 32
RACK_UUID = "0123456789abcdef0123456789abcdef"


def bus_id(gpu: int) -> str:
    return f"00000000:0{gpu}:00.0"


def link(
    number: int, remote: str | None = HIDDEN, state: int = 1, kind: int | None = 2, version: int = 6
) -> LinkReading:
    return LinkReading(
        link=number, p2p=True, state=state, remote_type=kind, remote_bus_id=remote, version=version, speed_mb_s=26562
    )


def direct(number: int, peer: int, state: int = 1) -> LinkReading:
    return link(number, bus_id(peer), state, kind=0)


def dead(number: int) -> LinkReading:
    """A link that is down and no longer says where it led."""
    return LinkReading(link=number, p2p=True, state=0, errors={"remote_bus_id": "NotSupported"})


def gpu(index: int, *links: LinkReading, fabric: FabricReading | None = None) -> GpuReading:
    return GpuReading(index=index, name="NVIDIA H200", bus_id=bus_id(index), links=links, fabric=fabric)


SWITCH = PciReading(address="0000:c0:00.0", path="/sys/devices/pci0000:c0/0000:c0:00.0", device_class="0x068000")
OTHER = PciReading(address="0000:c0:00.0", path="/sys/devices/pci0000:c0/0000:c0:00.0", device_class="0x030200")


@pytest.mark.parametrize(
    ("remote", "devices", "switched"),
    [
        pytest.param(link(0, kind=2), [], True, id="a switch that hides its address"),
        pytest.param(link(0, kind=0), [], True, id="a hidden end that calls itself a GPU"),
        pytest.param(link(0, "", kind=None), [], True, id="an empty name of unknown type"),
        pytest.param(link(0, "00000000:C0:00.0"), [], True, id="a switch by its type"),
        pytest.param(
            link(0, "00000000:C0:00.0", kind=255), [SWITCH], True, id="of unknown type, with a switch's class"
        ),
        pytest.param(link(0, "00000000:C0:00.0", kind=255), [], True, id="of unknown type, and not in the PCI tree"),
        pytest.param(link(0, "00000000:C0:00.0", kind=255), [OTHER], False, id="of unknown type, with another class"),
        pytest.param(link(0, "00000000:C0:00.0", kind=0), [], False, id="a GPU that this machine was not given"),
        pytest.param(link(0, "00000000:C0:00.0", kind=1), [], False, id="a POWER9 CPU"),
        pytest.param(link(0, state=2), [], True, id="a link that sleeps"),
        pytest.param(link(0, state=0), [], False, id="a link that is inactive"),
        pytest.param(link(0, state=3), [], False, id="a link whose traffic is disabled"),
        pytest.param(LinkReading(link=0, p2p=False, state=1, remote_bus_id=HIDDEN), [], False, id="a link without P2P"),
        pytest.param(LinkReading(link=0, p2p=True, remote_bus_id=HIDDEN), [], False, id="a link of unread state"),
    ],
)
def test_a_link_leads_to_a_switch(remote: LinkReading, devices: Sequence[PciReading], switched: bool) -> None:
    found, _ = nvlink([gpu(0, remote)], devices)
    assert found.switched is switched
    assert found.links_per_gpu == ([1] if switched else [])


@pytest.mark.parametrize(
    ("version", "generation"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 5), (8, 6), (0, None), (99, None)]
)
def test_the_version_is_an_enum_and_not_the_generation(version: int, generation: int | None) -> None:
    found, _ = nvlink([gpu(0, link(0, version=version))], [])
    assert found.generation == generation


def test_speed_is_read_from_links_that_are_up() -> None:
    found, _ = nvlink([gpu(0, link(0)), gpu(1, dead(0))], [])
    assert found.link_bandwidth_gb_s == 26.562


@pytest.mark.parametrize(
    ("gpus", "pairs", "down"),
    [
        pytest.param(
            [gpu(0, direct(0, 1), direct(1, 1)), gpu(1, direct(0, 0), direct(1, 0))],
            [NvlinkPair(a=0, b=1, links=2)],
            [],
            id="two links that both ends see",
        ),
        pytest.param(
            [gpu(0, direct(0, 1), direct(1, 1)), gpu(1, direct(0, 0), direct(1, 0, state=0))],
            [NvlinkPair(a=0, b=1, links=2)],
            [LinkDown(gpu=1, link=1)],
            id="one end says that a link is down, and where it led",
        ),
        pytest.param(
            [gpu(0, direct(0, 1), dead(1)), gpu(1, direct(0, 0), dead(1)), gpu(2, direct(0, 3), direct(1, 3)),
             gpu(3, direct(0, 2), direct(1, 2))],
            [NvlinkPair(a=0, b=1, links=2), NvlinkPair(a=2, b=3, links=2)],
            [LinkDown(gpu=0, link=1), LinkDown(gpu=1, link=1)],
            id="both ends are silent, and no others: they are the two ends",
        ),
        pytest.param(
            [gpu(0, direct(0, 1), dead(1)), gpu(1, direct(0, 0), dead(1)), gpu(2, direct(0, 3), dead(1)),
             gpu(3, direct(0, 2), dead(1)), gpu(4, direct(0, 5), direct(1, 5)), gpu(5, direct(0, 4), direct(1, 4))],
            [NvlinkPair(a=0, b=1, links=1), NvlinkPair(a=2, b=3, links=1), NvlinkPair(a=4, b=5, links=2)],
            [LinkDown(gpu=0, link=1), LinkDown(gpu=1, link=1), LinkDown(gpu=2, link=1), LinkDown(gpu=3, link=1)],
            id="four ends are silent: nobody knows who lost what",
        ),
        pytest.param(
            [gpu(0, direct(0, 1)), gpu(1, direct(0, 0)), gpu(2, dead(0)), gpu(3, dead(0))],
            [NvlinkPair(a=0, b=1, links=1)],
            [],
            id="two cards without a bridge are not broken",
        ),
        pytest.param(
            [gpu(0, direct(0, 1)), gpu(1)],
            [],
            [],
            id="a link that only one end has",
        ),
    ],
)  # fmt: skip
def test_direct_links(gpus: list[GpuReading], pairs: list[NvlinkPair], down: list[LinkDown]) -> None:
    found, links_down = nvlink(gpus, [])
    assert found.pairs == pairs
    assert links_down == down


def test_a_lost_gpu_explains_the_links_of_its_neighbours() -> None:
    gpus = [
        gpu(0, direct(0, 1), dead(1)),
        gpu(1, direct(0, 0), dead(1)),
        gpu(2, direct(0, 3), direct(1, 3)),
        gpu(3, direct(0, 2), direct(1, 2)),
    ]
    _, down = nvlink(gpus, [], lost=[4])
    assert down == []


def test_links_into_switches_count_with_those_that_are_down() -> None:
    found, down = nvlink([gpu(0, link(0), link(1)), gpu(1, link(0), dead(1)), gpu(2, dead(0), dead(1))], [])
    assert found.links_per_gpu == [2, 2, 2]
    assert down == [LinkDown(gpu=1, link=1), LinkDown(gpu=2, link=0), LinkDown(gpu=2, link=1)]


def test_links_to_a_cpu_are_counted_apart() -> None:
    found, _ = nvlink([gpu(0, link(0, "00000004:00:00.0", kind=1), link(1, "00000004:00:00.1", kind=1))], [])
    assert found.cpu_links_per_gpu == [2]
    assert not found.switched


def fabric(uuid: str = ZERO_UUID, clique: int = 0, state: int = 3, status: int = 0) -> FabricReading:
    return FabricReading(state=state, status=status, cluster_uuid=uuid, clique_id=clique)


@pytest.mark.parametrize(
    ("fabrics", "domain"),
    [
        pytest.param([fabric(), fabric()], None, id="an all-zero uuid is not a multi-node domain"),
        pytest.param([fabric(RACK_UUID, 7)] * 2, "01234567-89ab-cdef-0123-456789abcdef.7", id="all agree"),
        pytest.param([fabric(RACK_UUID, 7), fabric(RACK_UUID, 8)], None, id="two cliques"),
        pytest.param([fabric(RACK_UUID, 7), fabric()], None, id="one GPU is outside"),
        pytest.param([fabric(RACK_UUID, 7, state=2)] * 2, None, id="not registered yet"),
        pytest.param([fabric(RACK_UUID, 7, status=999)] * 2, None, id="registered with an error"),
        pytest.param([None, None], None, id="no fabric at all"),
    ],
)
def test_multi_node_domain(fabrics: list[FabricReading | None], domain: str | None) -> None:
    found, _ = nvlink([gpu(index, link(0), fabric=each) for index, each in enumerate(fabrics)], [])
    said = found.domain and f"{found.domain.cluster_uuid}.{found.domain.clique_id}"
    assert said == domain


@pytest.mark.parametrize(
    ("reading", "p2p", "expected"),
    [
        pytest.param(fabric(), None, True, id="it says that it is"),
        pytest.param(fabric(state=1), 0, False, id="it says that it is not, whatever P2P says"),
        pytest.param(fabric(state=2), 0, False, id="it is still at it"),
        pytest.param(None, 0, True, id="an A100 with a peer"),
        pytest.param(None, 5, False, id="an A100 without a peer"),
        pytest.param(None, None, None, id="an A100 of which nothing is known"),
        pytest.param(fabric(state=0), 0, True, id="a driver without fabric support"),
    ],
)
def test_fabric_ready(reading: FabricReading | None, p2p: int | None, expected: bool | None) -> None:
    pairs = [PairReading(a=0, b=1, p2p_nvlink=p2p)]
    assert fabric_ready(gpu(0, link(0), fabric=reading), pairs) is expected
