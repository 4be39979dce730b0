"""Where a device plugin chooses: one rule says what of a set's worth counts."""

from closeknit.placement.allreduce.rings import rings
from closeknit.placement.gang.cache import Tables
from closeknit.placement.gpusets.exhaustive import ExhaustiveSets
from closeknit.placement.gpusets.set_facts import SetFacts
from closeknit.placement.gpusets.set_value import SetCriteria
from closeknit.placement.place import place
from closeknit.placement.values.placement import Placement
from scenarios.clusters import cluster_of, graph, node, wanted


def test_a_share_of_its_own_is_left_to_a_plugin_whose_picks_have_equal_rings() -> None:
    """Three of the GPUs 0, 1, 2, 3 and 6 of a DGX-1V: trees could use some picks better, and rings none."""
    machine = graph("dgx-1v")
    sets = ExhaustiveSets(SetFacts(machine, rings))
    free = sum(1 << gpu for gpu in (0, 1, 2, 3, 6))
    picked = sets.facts.picks
    assert picked is not None
    found = picked.pick(free, 3)
    assert found is not None
    assert len({sets.facts.value[mask, SetCriteria(3, alone=True)] for mask in found.all}) > 1
    assert sets.is_foreseen(free, (), 0, SetCriteria(3, alone=True))


def test_such_a_job_is_placed() -> None:
    cluster = cluster_of(node("gpu-1", graph("dgx-1v"), gpus="0 1 2 3 a a 6 a", offer="plugin"))
    assert isinstance(place(cluster, wanted(gpus=3), Tables()), Placement)
