"""Recorded machines: what the agent publishes of them is what nvidia-smi and NCCL said there, cell by cell."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from closeknit.agent.discovery.readings import dump
from hardware.agreement import cells
from hardware.recording import Recording, anonymised, read

DUMPS = Path(__file__).parents[3] / "fixtures" / "dumps"
# Cells of each source: a table that lost its rows would agree with anything.
REAL = {
    "hgx-h200-8gpu-vm": {"nvidia-smi topo -m": 28, "nvidia-smi nvlink -s": 160, "NCCL": 45},
    "hgx-h200-4gpu-vm": {"nvidia-smi topo -m": 6, "nvidia-smi nvlink -s": 80, "nvidia-smi -q": 39, "NCCL": 15},
    "hgx-h200-2gpu-vm": {"nvidia-smi topo -m": 1, "nvidia-smi nvlink -s": 40, "nvidia-smi -q": 21, "NCCL": 6},
    "hgx-h200-1gpu-vm": {"nvidia-smi -q": 12, "NCCL": 2},
}


@pytest.mark.parametrize("stem", REAL)
def test_a_recorded_machine_is_what_the_others_said_of_it(stem: str) -> None:
    found = cells(read(DUMPS, stem))
    counted = Counter(cell.source for cell in found)
    assert counted == REAL[stem]
    assert [cell for cell in found if not cell.agrees] == []


def test_a_wrong_fact_is_a_cell_that_differs() -> None:
    recording = read(DUMPS, "hgx-h200-2gpu-vm")
    readings = dump.decode(recording.dump)
    gpu = readings.gpus[1]
    links = (msgspec.structs.replace(gpu.links[0], state=0, speed_mb_s=None), *gpu.links[1:])
    wrong = msgspec.structs.replace(gpu, minor=7, uuid="GPU-00000000-0000-4000-8000-0000000000ff", links=links)
    readings = msgspec.structs.replace(readings, driver_version="1.2", gpus=(readings.gpus[0], wrong))
    found = cells(Recording(dump.encode(readings), recording.topo_m, recording.nvlink_s, recording.query_xml))
    differ = {(cell.source, cell.subject, cell.fact) for cell in found if not cell.agrees}
    assert differ == {
        ("nvidia-smi nvlink -s", "GPU 1", "uuid"),
        ("nvidia-smi -q", "GPU 1", "uuid"),
        ("nvidia-smi -q", "GPU 1", "minor number"),
        ("nvidia-smi -q", "machine", "driver"),
    }


def test_a_recording_that_is_kept_names_no_real_device() -> None:
    dumped = b'{"uuid": "GPU-1ee9a9e5-415b-f294-282b-c4851b85faac"}'
    told = "<uuid>GPU-1ee9a9e5-415b-f294-282b-c4851b85faac</uuid><serial>165</serial><pdi>0xd3</pdi>"
    kept = anonymised(Recording(dumped, query_xml=told))
    assert kept.dump == b'{"uuid": "GPU-00000000-0000-4000-8000-000000000000"}'
    assert kept.query_xml == (
        "<uuid>GPU-00000000-0000-4000-8000-000000000000</uuid><serial>replaced</serial><pdi>replaced</pdi>"
    )
