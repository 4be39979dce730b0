"""Which of equal domains a gang takes: the fullest, and the innermost level decides first."""

from closeknit.placement.gang.cache import Tables
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted

ALL, NONE = "0 1 2 3 4 5 6 7", "a a a a a a a a"
RACKS = {
    "n0": ("b0", "r0"),
    "n1": ("b0", "r0"),
    "n2": ("b0", "r1"),
    "n3": ("b0", "r1"),
    "n4": ("b1", "r2"),
    "n5": ("b1", "r2"),
}


def taken(**free: str) -> str:
    nodes = (node(name, graph("hgx-h200"), gpus=free.get(name, ALL), path=path) for name, path in RACKS.items())
    found = place(cluster_of(*nodes, levels=("block", "rack")), wanted(gpus=8), Tables())
    assert isinstance(found, Placement)
    return found.shares[0].node


def test_a_rack_that_is_nearly_full_is_taken_before_an_emptier_one_in_a_fuller_block() -> None:
    assert taken(n1=NONE) == "n0"  # its block has three nodes free, the other has two


def test_of_equal_racks_the_one_in_the_fuller_block_is_taken() -> None:
    assert taken() == "n4"
