"""Whatever sysfs said of its devices, discovery says something that the API takes, and raises nothing."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.agent.discovery.health.history import History, followed
from closeknit.agent.discovery.publication import publication
from closeknit.agent.discovery.readings.readings import (
    CpuReading,
    FabricReading,
    GpuReading,
    HealthReading,
    KernelReading,
    LinkReading,
    MigDeviceReading,
    PairReading,
    PciReading,
    RdmaPortReading,
    RdmaReading,
    Readings,
    XidReading,
)
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import Method, NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus

SAID = (
    "0x10de|0x15b3|0xf1d0|0x030200|0x020700|0x040000|0x1021|0x101e|4: ACTIVE|1: CA|4: RNIC|InfiniBand|Ethernet|RoCE v2|"
    "400 Gb/sec|efa|MT_0000001121|Y|6.8.0|GenuineIntel|0x41"
)
WORDS = st.sampled_from(SAID.split("|")) | st.text(max_size=80)
MAYBE = st.none() | WORDS
NUMBERS = st.none() | st.integers(-2, 2) | st.integers(-(2**70), 2**70)
ADDRESSES = st.sampled_from(["0000:00:01.0", "0000:01:00.0", "0000:01:00.1", "10000:41:00.0"]) | st.text(max_size=20)
PATHS = st.lists(st.sampled_from(["pci0000:00", "pci0000:40", "0000:00:01.0", "0000:01:00.0", "x", "..", ""])).map(
    "/".join
)
NAMES = st.sampled_from(["mlx5_0", "mlx5_10", "mlx5_\N{ARABIC-INDIC DIGIT ONE}", "a1b", "1", ""]) | st.text(max_size=70)
ERRORS = st.dictionaries(WORDS, WORDS, max_size=2)
PCI = st.builds(
    PciReading,
    ADDRESSES,
    PATHS,
    vendor=MAYBE,
    device=MAYBE,
    device_class=MAYBE,
    numa_node=NUMBERS,
    max_link_width=NUMBERS,
)
PORTS = st.builds(
    RdmaPortReading,
    st.integers(-1, 300),
    state=MAYBE,
    link_layer=MAYBE,
    rate=MAYBE,
    gid_types=st.none() | st.tuples(WORDS),
    gid_netdevs=st.lists(WORDS, max_size=2).map(tuple),
    errors=ERRORS,
)
RDMA = st.builds(
    RdmaReading,
    NAMES,
    address=st.none() | ADDRESSES,
    node_type=MAYBE,
    board_id=MAYBE,
    driver=MAYBE,
    netdevs=st.lists(WORDS, max_size=2).map(tuple),
    netdev_ports=st.dictionaries(WORDS, st.integers(-1, 3), max_size=2),
    is_virtual_function=st.booleans(),
    is_scalable_function=st.booleans(),
    physical_address=st.none() | ADDRESSES,
    is_switch_management=st.none() | st.booleans(),
    ports=st.lists(PORTS, max_size=3).map(tuple),
)
CPUS = st.builds(
    CpuReading, MAYBE, family=NUMBERS, model=NUMBERS, implementer=MAYBE, part=MAYBE, power=MAYBE, sockets=NUMBERS
)
KERNELS = st.builds(
    KernelReading,
    nvidia_version=MAYBE,
    has_peer_memory=st.none() | st.booleans(),
    rdma_netns_mode=MAYBE,
    kernel_release=MAYBE,
    cpu_model=MAYBE,
    cpu=CPUS,
    has_hypervisor=st.none() | st.booleans(),
    system_vendor=MAYBE,
    memlock_bytes=NUMBERS,
    topology_manager_policy=MAYBE,
    cpu_manager_policy=MAYBE,
    memory_manager_policy=MAYBE,
)
LINKS = st.builds(
    LinkReading,
    st.integers(0, 40),
    p2p=st.none() | st.booleans(),
    state=NUMBERS | st.sampled_from([0, 1, 2]),
    remote_type=NUMBERS,
    remote_bus_id=MAYBE | ADDRESSES,
    version=NUMBERS | st.integers(1, 8),
    speed_mb_s=NUMBERS | st.just(26562),
    errors=ERRORS,
)
FABRICS = st.builds(
    FabricReading,
    NUMBERS.filter(lambda number: number is not None) | st.just(3),
    st.integers(-1, 3),
    st.text(max_size=80) | st.just("8" * 32),
    st.integers(-(2**70), 2**70),
    health_mask=NUMBERS,
    health_summary=NUMBERS,
)
MIG_DEVICES = st.builds(
    MigDeviceReading,
    uuid=MAYBE,
    name=MAYBE | WORDS.map("NVIDIA H200 MIG {}".format),
    memory_mib=NUMBERS,
    errors=ERRORS,
)
HEALTH = st.builds(
    HealthReading,
    recovery_action=NUMBERS,
    rows_pending=st.none() | st.booleans(),
    uncorrected_ecc=NUMBERS,
    clocks_event_reasons=NUMBERS,
    link_errors=NUMBERS,
    pids=st.none() | st.just((1,)),
    errors=ERRORS,
)
GPU_FACTS = st.fixed_dictionaries(
    {},
    optional={
        "uuid": MAYBE | st.just("GPU-same"),
        "name": MAYBE | st.just("NVIDIA H200"),
        "minor": NUMBERS,
        "architecture": NUMBERS,
        "compute_capability": st.none() | st.tuples(st.integers(-(2**70), 2**70), st.integers(-2, 2**40)),
        "memory_bytes": NUMBERS,
        "module_id": NUMBERS,
        "max_pcie_generation": NUMBERS,
        "max_pcie_width": NUMBERS,
        "virtualization_mode": NUMBERS,
        "mig_mode": st.none() | st.tuples(st.integers(-1, 2), st.integers(-1, 2)),
        "mig_devices": st.lists(MIG_DEVICES, max_size=2).map(tuple),
        "c2c_links": NUMBERS | st.just(10),
        "c2c_link_mb_s": NUMBERS,
        "fabric": st.none() | FABRICS,
        "links": st.lists(LINKS, max_size=3).map(tuple),
        "health": st.none() | HEALTH,
        "errors": ERRORS | st.just({"handle": "GpuIsLost"}),
    },
)
PAIRS = st.builds(PairReading, st.just(0), st.just(1), common_ancestor=NUMBERS)


@settings(max_examples=50, deadline=None)
@given(
    pci=st.lists(PCI, max_size=5),
    rdma=st.lists(RDMA, max_size=4),
    kernel=KERNELS,
    pairs=st.lists(PAIRS, max_size=1),
    lists_capture_cards=st.booleans(),
)
def test_any_readings(
    pci: list[PciReading],
    rdma: list[RdmaReading],
    kernel: KernelReading,
    pairs: list[PairReading],
    lists_capture_cards: bool,
) -> None:
    found = discover(
        Readings(
            gpus=(GpuReading(index=0, bus_id="0000:01:00.0"), GpuReading(index=1, bus_id="10000:41:00.0")),
            pairs=tuple(pairs),
            pci=tuple(pci),
            lists_capture_cards=lists_capture_cards,
            rdma=tuple(rdma),
            kernel=kernel,
        ),
        Method.RECORDED,
    )
    assert NodeTopologySpec.model_validate(found.spec.wire()) == found.spec


@settings(max_examples=50, deadline=None)
@given(facts=st.tuples(GPU_FACTS, GPU_FACTS), cuda=NUMBERS, driver=MAYBE, xid=st.integers(-1, 2**64))
def test_any_gpus(facts: tuple[dict[str, Any], ...], cuda: int | None, driver: str | None, xid: int) -> None:
    """Each of them costs itself: what is published has all GPUs whose place is known, and the API server takes it."""
    places = ("00000000:01:00.0", "00000000:41:00.0")
    gpus = tuple(
        GpuReading(index=index, bus_id=place, **fact)
        for index, (place, fact) in enumerate(zip(places, facts, strict=True))
    )
    readings = Readings(driver_version=driver, cuda_version=cuda, gpus=gpus, xids=(XidReading(xid=xid),))
    course = followed(followed(History(), readings, 0.0), readings, 60.0)
    found = discover(readings, Method.NVML, course, frozenset({"GPU-same"}))
    wanted = publication(found, NodeTopologyStatus(), 1, None, "2026-11-22T12:00:00Z", found.spec)
    assert NodeTopologySpec.model_validate(wanted.spec.wire()) == wanted.spec
    assert NodeTopologyStatus.model_validate(wanted.status.wire()) == wanted.status
    assert [gpu.index for gpu in found.spec.gpus] == [0, 1]
    assert all(
        number < 2**63 for number in whole_numbers(wanted.spec.wire())
    )  # more no JSON number of Kubernetes holds


def whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from whole_numbers(each)
    elif isinstance(value, int):
        yield value
