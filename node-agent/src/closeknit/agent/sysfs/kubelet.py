"""The kubelet's Topology Manager policy, where the administrator let the agent see the kubelet's configuration file."""

from closeknit.agent.sysfs.folder import Folder

# Where the chart mounts the file that agent.kubeletConfig names.
CONFIGURATION = "etc/closeknit/kubelet-configuration"
MAX_BYTES = 1 << 18  # of any such file; kubeadm's has 1 KB
KEY = "topologyManagerPolicy"


def topology_manager_policy(top: Folder) -> str | None:
    """What the file says; None where it does not.

    A file without the key does not mean the default: the kubelet's flags and drop-in files come after it. Nor is the
    policy in the state files of its CPU and memory managers.
    """
    if top.has(CONFIGURATION, "topology_manager_policy") is not True:
        return None
    content = top.content(CONFIGURATION, "topology_manager_policy", MAX_BYTES)
    if content is None:
        return None
    import ryaml  # noqa: PLC0415 -- `dump` runs where it is not installed

    try:
        found = ryaml.loads(content.decode())
    except (ValueError, RecursionError):  # ryaml's own error is a ValueError, as is that of text that is no UTF-8
        found = None
    policy = found.get(KEY) if isinstance(found, dict) else None
    if isinstance(policy, str) and policy.isprintable() and 0 < len(policy) <= 63:
        return policy
    top.errors["topology_manager_policy"] = "NotConfigured" if isinstance(found, dict) and policy is None else "NotText"
    return None
