"""Names of CPUs and the bandwidth between sockets, by what /proc/cpuinfo prints on each architecture."""

import pytest

from closeknit.agent.discovery.machine.cpu_models import inter_socket_gb_s, model
from closeknit.agent.discovery.readings.readings import CpuReading, KernelReading


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(KernelReading(cpu_model="AMD EPYC 7742"), "AMD EPYC 7742", id="x86 prints a name"),
        pytest.param(KernelReading(cpu=CpuReading(implementer="0x41", part="0xd4f")), "Arm Neoverse-V2", id="Grace"),
        pytest.param(KernelReading(cpu=CpuReading(implementer="0x4e", part="0x010")), "Arm Olympus", id="Vera"),
        pytest.param(
            KernelReading(cpu=CpuReading(implementer="0x99", part="0x1")),
            "Arm implementer 0x99 part 0x1",
            id="an Arm that is in no table",
        ),
        pytest.param(KernelReading(cpu=CpuReading(implementer="0x41")), None, id="half a name"),
        pytest.param(KernelReading(cpu=CpuReading(power="POWER9, altivec supported")), "POWER9", id="POWER9"),
        pytest.param(KernelReading(), None, id="unread"),
    ],
)
def test_model(kernel: KernelReading, expected: str | None) -> None:
    assert model(kernel) == expected


def intel(number: int | None, family: int | None = 6) -> CpuReading:
    return CpuReading(vendor="GenuineIntel", family=family, model=number, sockets=2)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        pytest.param(intel(0x4F), 6.0, id="Broadwell"),
        pytest.param(intel(0x55), 10.0, id="Skylake"),
        pytest.param(intel(0x6A), 10.0, id="Ice Lake"),
        pytest.param(intel(0x8F), 22.0, id="Sapphire Rapids"),
        pytest.param(intel(0xAD), 22.0, id="Granite Rapids"),
        pytest.param(intel(0xCF), 40.0, id="Emerald Rapids"),
        pytest.param(intel(0x01, family=19), None, id="a family that NCCL does not know either"),
        pytest.param(intel(None), None, id="Intel without a number"),
        pytest.param(CpuReading(vendor="AuthenticAMD", sockets=2), 16.0, id="AMD"),
        pytest.param(CpuReading(vendor="AuthenticAMD", sockets=1), None, id="one socket"),
        pytest.param(CpuReading(vendor="AuthenticAMD"), None, id="sockets unread"),
        pytest.param(CpuReading(vendor="of tomorrow", sockets=2), None, id="unknown vendor"),
        pytest.param(CpuReading(implementer="0x41", part="0xd4f", sockets=2), 6.0, id="Arm"),
        pytest.param(CpuReading(power="POWER9", sockets=2), 32.0, id="POWER9"),
        pytest.param(CpuReading(power="POWER10", sockets=2), None, id="POWER10 has no NVLink and no figure"),
        pytest.param(CpuReading(sockets=2), None, id="unread"),
    ],
)
def test_between_sockets(cpu: CpuReading, expected: float | None) -> None:
    assert inter_socket_gb_s(cpu) == expected
