"""The agent on a stand-in that its authors did not write: NVIDIA's mock NVML (k8s-test-infra, pkg/gpu/mocknvml).

That is a real libnvidia-ml.so.1 with some 400 calls, below NVIDIA's own Python binding, and the agent is a process of
its own. CLOSEKNIT_MOCK_NVML names the folder where it was built, with its `configs`. It is not ours to build or to
keep: without it these tests are skipped, and the last line of the run says so.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.agent.discovery.readings import dump
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.topology import Discovery, discover
from closeknit.api.nodetopology import Confidence, Method
from closeknit.api.nodetopology_status import Health
from closeknit.machine.graph import machine

FOLDER = Path(os.environ.get("CLOSEKNIT_MOCK_NVML", "/nowhere"))
LIBRARY = FOLDER / "libnvidia-ml.so.1"
pytestmark = pytest.mark.mock_nvml

LONG = pytest.mark.long
GIB = 1 << 30
RACK = ("00000000-0000-0000-0000-000000000001", 0)


@dataclass(frozen=True)
class Expected:
    """What a profile of the mock describes."""

    product: str
    capability: str
    gib: int
    gpus: int = 8
    links: int = 0
    """Into NVSwitches, of each GPU."""
    gb_s: float | None = None
    generation: int | None = None
    """As the number that the mock gives reads in nvml.h. It is a generation there, and no nvmlNvlinkVersion_t: 4 for an
    H100 is NVML's 3.0."""
    is_contradictory: bool = False
    domain: tuple[str, int] | None = None
    """H100 is given one here, which no single HGX board has."""
    first_row: str = "X PIX PIX PIX SYS SYS SYS SYS"


TRAY = "X PIX SYS SYS SYS SYS SYS SYS"
EXPECTED = {
    "a100": Expected("NVIDIA-A100-SXM4-40GB", "8.0", 40, 8, 12, 25.781, 2, is_contradictory=True),
    "h100": Expected("NVIDIA-H100-80GB-HBM3", "9.0", 80, 8, 18, 26.562, 3, is_contradictory=True, domain=RACK),
    "b200": Expected("NVIDIA-B200", "10.0", 192),  # without any NVLink
    "gb200": Expected(
        "NVIDIA-GB200", "10.0", 192, 8, 18, 53.125, 3, is_contradictory=True, domain=RACK, first_row=TRAY
    ),
    "gb300": Expected(
        "NVIDIA-GB300-NVL", "10.0", 288, 8, 18, 53.125, 3, is_contradictory=True, domain=RACK, first_row=TRAY
    ),
    "l40s": Expected("NVIDIA-L40S", "8.9", 48, first_row="X PIX SYS SYS PIX PIX SYS SYS"),
    "t4": Expected("NVIDIA-T4", "7.5", 16, 4, first_row="X PIX PIX PIX"),
}
SHORT = ("gb300", "l40s")


def read(config: Path, root: Path) -> Readings:
    """What the agent reads, as a process with the mock in place of the driver."""
    command = [sys.executable, "-m", "closeknit.agent.main", "dump", "--root", str(root)]
    env = os.environ | {"LD_LIBRARY_PATH": str(FOLDER), "MOCK_NVML_CONFIG": str(config)}
    done = subprocess.run(command, capture_output=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return dump.decode(done.stdout)


def config_of(profile: str) -> Path:
    return FOLDER / f"configs/mock-nvml-config-{profile}.yaml"


def found_in(readings: Readings) -> Discovery:
    found = discover(readings, Method.NVML)
    machine(found.spec)
    return found


@pytest.mark.parametrize("profile", [pytest.param(name, marks=[] if name in SHORT else LONG) for name in EXPECTED])
def test_every_profile_is_read(profile: str, tmp_path: Path) -> None:
    expected = EXPECTED[profile]
    found = found_in(read(config_of(profile), tmp_path))
    spec = found.spec
    assert len(spec.gpus) == expected.gpus
    assert {(gpu.product, gpu.compute_capability) for gpu in spec.gpus} == {(expected.product, expected.capability)}
    assert {round((gpu.memory_bytes or 0) / GIB) for gpu in spec.gpus} == {expected.gib}
    assert (spec.nvlink.switched, spec.nvlink.links_per_gpu) == (
        expected.links > 0,
        [expected.links] * expected.gpus if expected.links else [],
    )
    assert (spec.nvlink.link_bandwidth_gb_s, spec.nvlink.generation) == (expected.gb_s, expected.generation)
    domain = spec.nvlink.domain
    assert (domain and (domain.cluster_uuid, domain.clique_id)) == expected.domain
    assert spec.pcie.levels[0] == expected.first_row
    assert (found.gpus, found.links_down) == ((), ())
    is_low = spec.source.topology_confidence is Confidence.LOW
    assert is_low is expected.is_contradictory
    assert ("which no GPU of compute capability" in found.findings[0].message) is expected.is_contradictory


@pytest.mark.parametrize(
    ("failure", "reasons"),
    [
        pytest.param({"mode": "lost"}, ["GPULost"], id="lost"),
        pytest.param({"mode": "fallen_off_bus"}, ["GPULost"], id="fallen off the bus", marks=LONG),
        pytest.param(
            {"mode": "ecc_uncorrectable", "xid": {"code": 64}},
            ["RowRemapFailed", "UncorrectedECC"],
            id="ECC and an XID",
        ),
    ],
)
def test_every_failure_is_told_of_its_gpu_alone(failure: dict[str, Any], reasons: list[str], tmp_path: Path) -> None:
    described = yaml.safe_load(config_of("h100").read_text())
    described["devices"][2]["failure"] = failure
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(described))
    readings = read(config, tmp_path)
    found = found_in(readings)
    assert [(gpu.index, gpu.state, gpu.reasons) for gpu in found.gpus] == [(2, Health.UNHEALTHY, reasons)]
    assert len(found.spec.gpus) == (7 if reasons == ["GPULost"] else 8)  # without sysfs nobody knows where it sits
    assert [event.xid for event in readings.xids] == ([64] if "xid" in failure else [])
