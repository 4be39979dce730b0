"""From a placement to Pods: launch contracts, NCCL and RDMA settings, manifests. Pure."""
