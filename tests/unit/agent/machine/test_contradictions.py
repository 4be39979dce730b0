"""What NVML says of NVLinks that cannot all be true: told, and of low confidence; and what only seems so."""

from typing import Any

import pytest
from msgspec.structs import replace

from closeknit.agent.discovery.machine.contradictions import contradiction
from closeknit.agent.discovery.readings.readings import FabricReading, GpuReading, LinkReading, PciReading, Readings
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import Confidence, Method

INTO_SWITCH = LinkReading(
    link=0, p2p=True, state=1, remote_type=2, remote_bus_id="FFFFFFFF:FF:FF.0", version=6, speed_mb_s=26562
)
CARD = PciReading(
    address="0000:c0:00.0", path="/sys/devices/pci0000:c0/0000:c0:00.0", vendor="0x15b3", device_class="0x020700"
)


def bus_id(gpu: int) -> str:
    return f"00000000:{gpu:02X}:00.0"


@pytest.mark.parametrize(
    ("capability", "version", "expected"),
    [
        pytest.param((9, 0), 6, None, id="H100: 4.0"),
        pytest.param((8, 0), 4, None, id="A100: 3.0"),
        pytest.param((8, 0), 5, None, id="Ampere: 3.1"),
        pytest.param((7, 0), 3, None, id="V100: 2.2"),
        pytest.param((10, 3), 7, None, id="B300: 5.0"),
        pytest.param((10, 7), 8, None, id="Rubin: 6.0"),
        pytest.param((12, 0), 7, None, id="of a capability without NVLink so far"),
        pytest.param(None, 3, None, id="capability unread"),
        pytest.param((9, 0), 0, None, id="version unread"),
        pytest.param(
            (9, 0), 3, "GPU 0, 1 tell of NVLink 2, which no GPU of compute capability 9.0 has", id="an H100 with 2.2"
        ),
        pytest.param(
            (10, 0), 5, "GPU 0, 1 tell of NVLink 3, which no GPU of compute capability 10.0 has", id="a B200 with 3.1"
        ),
    ],
)
def test_a_generation_that_no_gpu_of_its_kind_has_is_told(
    capability: tuple[int, int] | None, version: int, expected: str | None
) -> None:
    links = (replace(INTO_SWITCH, version=version),)
    gpus = [GpuReading(index=at, bus_id=bus_id(at), compute_capability=capability, links=links) for at in range(2)]
    assert contradiction(gpus) == expected
    found = discover(Readings(gpus=tuple(gpus)), Method.NVML)
    assert found.spec.source.topology_confidence is (Confidence.HIGH if expected is None else Confidence.LOW)
    told = found.findings[0].message
    assert told.partition("; ")[2] == ("" if expected is None else f"NVML contradicts itself: {expected}")


def gpu(index: int, *links: LinkReading, **facts: Any) -> GpuReading:
    return replace(
        GpuReading(index=index, name="NVIDIA H200", bus_id=bus_id(index), compute_capability=(9, 0), links=links),
        **facts,
    )


def to(number: int, remote: str, kind: int = 0) -> LinkReading:
    return replace(INTO_SWITCH, link=number, remote_bus_id=remote, remote_type=kind)


def of_each(count: int, *links: LinkReading, **facts: Any) -> list[GpuReading]:
    return [gpu(index, *links, **facts) for index in range(count)]


def into_switches(count: int) -> tuple[LinkReading, ...]:
    return tuple(replace(INTO_SWITCH, link=number) for number in range(count))


DOWN = replace(INTO_SWITCH, link=1, state=0, remote_bus_id=None, errors={"remote_bus_id": "NotSupported"})
FABRIC = FabricReading(state=3, status=0, cluster_uuid="0123456789abcdef" * 2, clique_id=1)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param(of_each(2, *into_switches(18)), None, id="an H200"),
        pytest.param(
            of_each(2, *into_switches(18), compute_capability=(8, 0)),
            "GPU 0, 1 tell of NVLink 4, which no GPU of compute capability 8.0 has; "
            "GPU 0, 1 tell of compute capability 8.0, which no H200 has",
            id="the name is another GPU's",
        ),
        pytest.param(
            of_each(1, *into_switches(19)), "GPU 0 tells of 19 NVLinks, more than any H200 has", id="too many links"
        ),
        pytest.param(
            [gpu(0, to(0, bus_id(0)))], "GPU 0 tells of an NVLink that ends where it begins", id="a link to itself"
        ),
        pytest.param([gpu(0, to(0, bus_id(1))), gpu(1, to(0, bus_id(0)))], None, id="two GPUs that are joined"),
        pytest.param(
            [gpu(0, to(0, bus_id(1))), gpu(1, to(0, bus_id(2))), gpu(2, to(0, bus_id(0)))],
            "GPU 0, 1, 2 tell of NVLinks to a GPU that says otherwise",
            id="each leads to the next",
        ),
        pytest.param(
            [gpu(0, to(0, bus_id(1)), to(1, bus_id(1))), gpu(1, to(0, bus_id(0)), DOWN)],
            None,
            id="one end is down, and does not say where it led",
        ),
        pytest.param(
            [gpu(0, to(0, bus_id(1))), gpu(1, errors={"handle": "GpuIsLost"})], None, id="the other end is lost"
        ),
        pytest.param(
            [gpu(0, to(0, CARD.address)), gpu(1, to(0, CARD.address, 2))],
            "GPU 0, 1 tell of an NVLink to a PCI device that is no GPU and no switch",
            id="a network card at the other end",
        ),
        pytest.param(
            [gpu(0, to(0, bus_id(1), 2)), gpu(1, *into_switches(1))],
            "GPU 0 tells of a switch at the address of a GPU",
            id="a switch that is a GPU",
        ),
        pytest.param(
            [gpu(0, to(0, bus_id(1)), replace(INTO_SWITCH, link=1)), gpu(1, to(0, bus_id(0)))],
            "GPU 0 tells of NVLinks both into switches and to other GPUs",
            id="switches and direct links",
        ),
        pytest.param(
            of_each(2, fabric=FABRIC), "GPU 0, 1 tell of an NVLink domain, and of no NVLink", id="a domain, and no link"
        ),
        pytest.param(of_each(2, fabric=FABRIC, mig_mode=(1, 1)), None, id="MIG turns links off"),
        pytest.param(of_each(2, fabric=replace(FABRIC, cluster_uuid="0" * 32)), None, id="a fabric without a domain"),
    ],
)
def test_what_cannot_be_is_told_and_not_believed(gpus: list[GpuReading], expected: str | None) -> None:
    found = discover(Readings(gpus=tuple(gpus), pci=(CARD,)), Method.NVML)
    told = found.findings[0].message
    assert (told.partition("NVML contradicts itself: ")[2] or None) == expected
    assert found.spec.source.topology_confidence is (Confidence.HIGH if expected is None else Confidence.LOW)


def test_a_driver_that_contradicts_itself_in_everything_fits_a_condition() -> None:
    gpus = [
        gpu(index, *(to(each, bus_id(index)) for each in range(19 + index)), compute_capability=(index, index))
        for index in range(64)
    ]
    told = discover(Readings(gpus=tuple(gpus)), Method.NVML).findings[0].message
    assert told.count("; ") <= 8


@pytest.mark.parametrize(
    ("others", "divided"),
    [
        pytest.param(FABRIC, None, id="one clique"),
        pytest.param(replace(FABRIC, clique_id=2), "GPU 0, 1 and GPU 2, 3", id="two cliques"),
        pytest.param(replace(FABRIC, cluster_uuid="f" * 32), "GPU 0, 1 and GPU 2, 3", id="two domains"),
        pytest.param(replace(FABRIC, cluster_uuid="0" * 32), "GPU 0, 1 and GPU 2, 3", id="a domain, and none"),
    ],
)
def test_gpus_of_different_cliques_are_not_said_to_be_joined(others: FabricReading, divided: str | None) -> None:
    gpus = [gpu(at, *into_switches(18), fabric=FABRIC if at < 2 else others) for at in range(4)]
    found = discover(Readings(gpus=tuple(gpus)), Method.NVML)
    _, fabric = found.findings
    expected = f"NVSwitches do not join {divided}: the fabric manager has them in different cliques."
    assert fabric.message == ("The NVSwitches join all GPUs that were read." if divided is None else expected)
    assert fabric.status == ("True" if divided is None else "False")
    assert found.spec.source.topology_confidence is (Confidence.HIGH if divided is None else Confidence.LOW)
    assert (found.spec.nvlink.domain is None) == (divided is not None)


def test_without_a_domain_nothing_is_divided() -> None:
    fabrics = [FabricReading(state=3, status=0, cluster_uuid="0" * 32, clique_id=at) for at in range(2)]
    gpus = [gpu(at, *into_switches(18), fabric=fabric) for at, fabric in enumerate(fabrics)]
    assert discover(Readings(gpus=tuple(gpus)), Method.NVML).findings[1].status == "True"


def test_a_lost_gpu_does_not_silence_a_contradiction() -> None:
    lost = gpu(1, errors={"handle": "GpuIsLost"})
    told = discover(Readings(gpus=(gpu(0, *into_switches(19)), lost)), Method.NVML).findings[0]
    assert told.reason == "PartlyRead"
    assert "NVML contradicts itself: GPU 0 tells of 19 NVLinks" in told.message
