"""Any machine of any profile, with any faults that it can have."""

from hypothesis import strategies as st

from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.profile import Faults, LinkFault
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.sources.simulated import load_profile, profile_names

PROFILES = {name: load_profile(name) for name in profile_names()}


@st.composite
def machines(draw: st.DrawFn) -> Readings:
    """What its agent would read."""
    profile = PROFILES[draw(st.sampled_from(sorted(PROFILES)))]
    whole = readings_of(profile, "node-1")
    indexes = st.integers(0, len(whole.gpus) - 1)
    dead = draw(st.sets(indexes))
    ends = [LinkFault(gpu.index, link.link) for gpu in whole.gpus for link in gpu.links]
    down = draw(st.lists(st.sampled_from(ends), max_size=4)) if ends else []
    switches = profile.nvlink.switches if profile.nvlink else 0
    lost = draw(st.sets(st.integers(0, switches - 1))) if switches else set()
    mig = draw(st.sets(indexes, max_size=2)) if profile.gpu.mig else set()
    nics = [device.name for device in whole.rdma]
    faults = Faults(
        dead_gpus=tuple(sorted(dead)),
        links_down=tuple(down),
        lost_switches=tuple(sorted(lost)),
        mig_gpus=tuple(sorted(mig)),
        nics_down=tuple(draw(st.lists(st.sampled_from(nics), max_size=2, unique=True))) if nics else (),
    )
    return readings_of(profile, "node-1", faults)
