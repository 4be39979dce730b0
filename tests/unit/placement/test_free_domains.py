"""What a move gains: domains that are free as a whole, and never any at the cost of others."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from closeknit.placement.free_domains import free_domains, gain
from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node

COUNTS = st.fixed_dictionaries({level: st.integers(0, 3) for level in ("block", "rack", "host")})


@given(COUNTS, COUNTS)
def test_a_gain_frees_something_and_takes_nothing(before: Mapping[str, int], after: Mapping[str, int]) -> None:
    has_gained = any(after[level] > before[level] for level in before)
    has_lost = any(after[level] < before[level] for level in before)
    assert (gain(before, after) is not None) == (has_gained and not has_lost)
    assert gain(before, before) is None
    assert gain(before, after) is None or gain(after, before) is None


def test_a_node_that_takes_no_jobs_is_not_free() -> None:
    story = Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job("train", spec={"gpus": 2}))
    assert free_domains(story.cluster) == {"host": 2}
    story.settle()
    assert free_domains(story.cluster) == {"host": 1}
    story.lose_node("gpu-2")
    assert free_domains(story.cluster) == {"host": 0}
