"""Policies of the kubelet's managers, where the administrator let the agent see the kubelet's configuration file."""

from collections.abc import Mapping

from closeknit.agent.sysfs.folder import Folder

# Where the chart mounts the file that agent.kubeletConfig names.
CONFIGURATION = "etc/closeknit/kubelet-configuration"
MAX_BYTES = 1 << 18  # of any such file; kubeadm's has 1 KB
# What readings call them, and what the file does.
KEYS = {
    "topology_manager_policy": "topologyManagerPolicy",
    "cpu_manager_policy": "cpuManagerPolicy",
    "memory_manager_policy": "memoryManagerPolicy",
}
_FILE = next(iter(KEYS))  # under this name it is told what is wrong with the file as a whole


def policies(top: Folder) -> Mapping[str, str]:
    """Those that the file says, by the names of readings.

    A file without a key does not mean the default: the kubelet's flags and drop-in files come after it. Nor is the
    Topology Manager's policy in the state files of its CPU and memory managers.
    """
    if top.has(CONFIGURATION, _FILE) is not True:
        return {}
    content = top.content(CONFIGURATION, _FILE, MAX_BYTES)
    if content is None:
        return {}
    import ryaml  # noqa: PLC0415 -- `dump` runs where it is not installed

    try:
        found = ryaml.loads(content.decode())
    except (ValueError, RecursionError):  # ryaml's own error is a ValueError, as is that of text that is no UTF-8
        found = None
    if not isinstance(found, dict):
        top.errors[_FILE] = "NotText"
        return {}
    told = {}
    for name, key in KEYS.items():
        policy = found.get(key)
        if isinstance(policy, str) and policy.isprintable() and 0 < len(policy) <= 63:
            told[name] = policy
        else:
            top.errors[name] = "NotConfigured" if policy is None else "NotText"
    return told
