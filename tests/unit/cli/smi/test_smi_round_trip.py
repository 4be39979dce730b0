"""A machine, as nvidia-smi topo -m prints it, read again: nothing is lost but what the text does not show."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import Confidence, Method, NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.objects import NodeTopology, ObjectMeta
from closeknit.cli.smi.reading import read
from closeknit.cli.topology.machine_sheet import sheet
from closeknit.machine.checks import LEVELS
from harness import smi_text
from harness.any_machine import PROFILES, machines

LOW, HIGH = Confidence.LOW, Confidence.HIGH
QUIET = settings(deadline=None)  # other tests may have the processor


def published(readings: Readings) -> tuple[NodeTopologySpec, NodeTopologyStatus]:
    found = discover(readings, Method.SIMULATED)
    return found.spec, NodeTopologyStatus(
        gpus=list(found.gpus), nics=list(found.nics), links_down=list(found.links_down)
    )


def links(spec: NodeTopologySpec, status: NodeTopologyStatus | None = None) -> tuple[tuple[int, ...], ...]:
    return sheet(NodeTopology(metadata=ObjectMeta(name="n"), spec=spec, status=status or NodeTopologyStatus())).links


def assert_same(spec: NodeTopologySpec, status: NodeTopologyStatus, again: NodeTopologySpec) -> None:
    counts = links(spec, status)
    assert links(again) == counts
    assert [(gpu.index, gpu.numa_node) for gpu in again.gpus] == [(gpu.index, gpu.numa_node) for gpu in spec.gpus]
    assert [nic.name for nic in again.nics or ()] == [nic.name for nic in spec.nics or ()]
    shown = [
        (new.gpu_levels, old.gpu_levels, old.data_direct_address)
        for new, old in zip(again.nics or (), spec.nics or (), strict=True)
    ]
    assert all(new == old or hidden is not None for new, old, hidden in shown)
    if any(map(any, counts)) and again.source.topology_confidence is HIGH:
        assert again.nvlink.switched == spec.nvlink.switched


def assert_levels(spec: NodeTopologySpec, status: NodeTopologyStatus, again: NodeTopologySpec) -> None:
    """Those that are shown are the same; one that an NVLink hides is never nearer than it is."""
    counts = links(spec, status)
    if not again.pcie.levels:
        assert any(map(any, counts))
        return
    for a, (row, old) in enumerate(zip(again.pcie.levels, spec.pcie.levels, strict=True)):
        for b, (word, was) in enumerate(zip(row.split(), old.split(), strict=True)):
            if a != b and counts[a][b] and again.source.pcie_confidence is LOW:
                assert LEVELS.index(word) >= LEVELS.index(was)
            else:
                assert word == was


@QUIET
@given(machines(), st.booleans(), st.booleans())
def test_any_machine(readings: Readings, names_products: bool, numbers_nics: bool) -> None:
    spec, status = published(readings)
    before = smi_text.listed(spec) if names_products else ""
    again = read(before + smi_text.topo(spec, status, numbers_nics=numbers_nics))
    assert again.source.method is Method.NVIDIA_SMI
    assert_same(spec, status, again)
    assert_levels(spec, status, again)


@QUIET
@given(machines(), st.booleans())
def test_both_tables_of_any_machine_show_all_levels(readings: Readings, is_m_first: bool) -> None:
    spec, status = published(readings)
    both = [smi_text.topo(spec, status), smi_text.topo(spec, status, command="-mp")]
    again = read("\n".join(both if is_m_first else both[::-1]))
    assert_same(spec, status, again)
    assert again.pcie.levels == spec.pcie.levels
    assert again.source.pcie_confidence is (HIGH if len(spec.gpus) > 1 else None)


WAYS = [
    smi_text.windows, smi_text.coloured, smi_text.half_coloured, smi_text.browser, smi_text.double_spaced,
    smi_text.quoted, smi_text.logged, smi_text.in_conversation, smi_text.old, smi_text.wrapped, smi_text.piped,
    smi_text.glued,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("profile", ["a100-pcie-4-crossed", "dgx1-v100", "dgx2", "gh200", "hgx-a800-8", "p4d"])
def test_on_its_way_into_an_issue_nothing_is_lost(profile: str, way: smi_text.Way) -> None:
    spec, status = published(readings_of(PROFILES[profile], "node-1"))
    for numbers_nics in (True, False):
        text = smi_text.topo(spec, status, numbers_nics=numbers_nics)
        assert read(way(text)) == read(text)


@QUIET
@given(machines(), st.lists(st.sampled_from(WAYS[:9]), max_size=4, unique=True))
def test_nor_on_several_ways(readings: Readings, ways: list[smi_text.Way]) -> None:
    spec, status = published(readings)
    text = passed = smi_text.topo(spec, status)
    for way in ways:
        passed = way(passed)
    assert_same(spec, status, read(passed))
    assert read(passed).pcie == read(text).pcie
