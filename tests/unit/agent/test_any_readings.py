"""Whatever sysfs said of its devices, discovery says something that the API takes, and raises nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from closeknit.agent.discovery.readings import (
    CpuReading,
    GpuReading,
    KernelReading,
    PairReading,
    PciReading,
    RdmaPortReading,
    RdmaReading,
    Readings,
)
from closeknit.agent.discovery.topology import discover
from closeknit.api.nodetopology import Method, NodeTopologySpec

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
