"""Which versions of NCCL read a variable.

To 2.30.7 by the source of each release (NCCL_PARAM, ncclGetEnv), later ones as docs/network.md says. Variables that
2.17 and all after it read are not here.
"""

from collections.abc import Mapping

from closeknit.api.names import MNNVL
from closeknit.api.text.nccl_version import ALL, NcclRange, NcclVersion, before, between, since

CTA_POLICY = "NCCL_CTA_POLICY"
READ_BY: Mapping[str, NcclRange] = {
    "NCCL_IB_SPLIT_DATA_ON_QPS": since(18),
    "NCCL_CUMEM_ENABLE": since(18),
    "NCCL_IB_MERGE_NICS": since(20),
    MNNVL: since(21),
    "NCCL_IB_ROCE_VERSION_NUM": since(21),
    "NCCL_IB_ADDR_FAMILY": since(21),
    "NCCL_IB_ADDR_RANGE": since(21),
    "NCCL_IB_FIFO_TC": since(22, 3),
    "NCCL_CONF_FILE": since(23),
    "NCCL_OOB_NET_ENABLE": since(23),
    "NCCL_OOB_NET_IFNAME": since(23),
    "NCCL_CUMEM_HOST_ENABLE": since(23),
    "NCCL_PAT_ENABLE": NcclRange(NcclVersion(2, 23), NcclVersion(2, 32)),
    "NCCL_MNNVL_CLIQUE_ID": since(23),
    "NCCL_RAS_ENABLE": since(24),
    "NCCL_RAS_ADDR": since(24),
    "NCCL_RAS_TIMEOUT_FACTOR": since(24),
    "NCCL_NET_MERGE_LEVEL": since(24),
    "NCCL_MNNVL_UUID": since(25),
    "NCCL_NET_GDR_C2C": since(26),
    "NCCL_IB_DATA_DIRECT": since(27, 3),
    "NCCL_PXN_C2C": since(27),
    "NCCL_WIN_ENABLE": since(27),
    "NCCL_SYM_CTAS": between(27, 32),
    CTA_POLICY: since(27),
    "NCCL_NETDEVS_POLICY": since(28),
    "NCCL_ENV_PLUGIN": since(28, 7),
    "NCCL_IPC_USE_ABSTRACT_SOCKET": since(29),
    "NCCL_IB_RESILIENCY_PORT_FAILOVER": since(29, 7),
    "NCCL_SYM_GIN_KERNELS_ENABLE": since(29, 7),
    "NCCL_MULTI_RANK_GPU_ENABLE": since(30),
    "NCCL_IB_OOO_RQ": since(30),
    "NCCL_NET_MERGE_POLICY": since(30, 7),
    "NCCL_IB_SUBNET_AWARE_ROUTING": since(30, 7),
    "NCCL_RUN_DIAGNOSTICS": since(31),
    "NCCL_RUN_RAS_DIAGNOSTICS": since(31),
    "NCCL_IB_PKEY_VALUE": since(31),
    "NCCL_IB_EVENT_BASED_LB": since(31),
    "NCCL_CFT_ENABLE": since(31),
    "NCCL_CE_COLL_AG_MULTICAST_THRESHOLD": since(31),
    "NCCL_HIER_CE_COLL_NUM_CTX": since(31),
    "NCCL_IB_RAIL_POLICY": since(32),
    "NCCL_PROGRESS_COUNTERS": since(32),
    "NCCL_IB_SORT_MERGE_NICS": since(32),
    "NCCL_NET_GDR_MLOPART": before(32),
}
# Names that are more than numbers are read from 2.29.2 on (init.cc: getEnvCtaPolicyOnce), the number of the copy
# engines from 2.28.3 on; what is older takes the default instead.
_POLICY_WORDS, _COPY_ENGINES = since(29), since(28)


def read_by(name: str, value: str | None) -> NcclRange:
    """The versions that read a variable with this value; None: an unknown one."""
    if name != CTA_POLICY or value is None:
        return READ_BY.get(name, ALL)
    if not value.strip().isdigit():
        return _POLICY_WORDS
    return _COPY_ENGINES if value.strip() == "2" else READ_BY[name]


def is_read(name: str, value: str | None, version: NcclVersion | None) -> bool:
    """Whether NCCL reads that; True where its version is not known."""
    return version is None or read_by(name, value).has(version)
