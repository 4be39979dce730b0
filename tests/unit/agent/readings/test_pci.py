"""PCI addresses as NVML and sysfs spell them, and distances as nvidia-smi names them."""

import pytest

from closeknit.agent.discovery.readings.pci import address, level
from closeknit.agent.discovery.readings.readings import PciReading


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [
        pytest.param("00000000:1A:00.0", "0000:1a:00.0", id="eight digits and capitals"),
        pytest.param("0000:1A:00.0", "0000:1a:00.0", id="the legacy four digits"),
        pytest.param("00000009:01:00.0", "0009:01:00.0", id="the domain of a GH200"),
        pytest.param("00010000:01:00.0", "10000:01:00.0", id="a domain of five digits"),
        pytest.param("FFFFFFFF:FF:FF.0", None, id="a hidden switch"),
        pytest.param("FFFFFFF:FF:FF.0", None, id="a hidden switch's legacy name"),
        pytest.param("", None, id="an empty name"),
        pytest.param("\x01\x02", None, id="unprintable bytes"),
        pytest.param(None, None, id="unread"),
    ],
)
def test_address(bus_id: str | None, expected: str | None) -> None:
    assert address(bus_id) == expected


def device(path: str, numa: int | None = None) -> PciReading:
    return PciReading(address=path.rsplit("/", 1)[1], path=f"/sys/devices/{path}", numa_node=numa)


SWITCHED = "pci0000:00/0000:00:01.0/0000:01:00.0"  # a root port and the upstream port of a switch


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param(
            device(f"{SWITCHED}/0000:02:00.0/0000:03:00.0"),
            device(f"{SWITCHED}/0000:02:01.0/0000:04:00.0"),
            "PIX",
            id="below one switch",
        ),
        pytest.param(
            device("pci0000:00/0000:00:01.0/0000:01:00.0"),
            device("pci0000:00/0000:00:01.0/0000:01:00.1"),
            "PIX",
            id="two functions of one card",
        ),
        pytest.param(
            device(f"{SWITCHED}/0000:02:00.0/0000:03:00.0/0000:04:00.0/0000:05:00.0"),
            device(f"{SWITCHED}/0000:02:01.0/0000:06:00.0"),
            "PXB",
            id="one switch below another",
        ),
        pytest.param(
            device("pci0000:00/0000:00:01.0/0000:01:00.0"),
            device("pci0000:00/0000:00:02.0/0000:02:00.0"),
            "PHB",
            id="two ports of one root",
        ),
        pytest.param(
            device("pci0000:00/0000:00:06.0"), device("pci0000:00/0000:00:07.0"), "PHB", id="one flat virtual bus"
        ),
        pytest.param(
            device("pci0000:00/0000:00:01.0/0000:01:00.0", 1),
            device("pci0000:40/0000:40:01.0/0000:41:00.0", 1),
            "NODE",
            id="two roots of one NUMA node",
        ),
        pytest.param(
            device("pci0000:00/0000:00:01.0/0000:01:00.0", 0),
            device("pci0000:80/0000:80:01.0/0000:81:00.0", 1),
            "SYS",
            id="two NUMA nodes",
        ),
        pytest.param(
            device("pci0000:00/0000:00:01.0/0000:01:00.0", -1),
            device("pci0000:80/0000:80:01.0/0000:81:00.0", -1),
            "SYS",
            id="two roots whose NUMA node the firmware does not say",
        ),
        pytest.param(
            device("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"),
            device("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:07.0/10000:e2:00.0"),
            "PHB",
            id="a root inside a root (VMD): the inner one counts",
        ),
        pytest.param(device("virtual/0000:01:00.0"), device("pci0000:00/0000:00:01.0"), None, id="a path without root"),
    ],
)
def test_level(a: PciReading, b: PciReading, expected: str | None) -> None:
    assert level(a, b) == expected
    assert level(b, a) == expected
