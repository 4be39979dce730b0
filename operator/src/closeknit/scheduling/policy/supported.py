"""Fields of the spec that are not supported together. The refusal names them."""

from closeknit.api.trainingjob import Framework, TrainingJobSpec

_WITH_SERVERS = (Framework.TENSORFLOW, Framework.CUSTOM)


def refusal(spec: TrainingJobSpec) -> str | None:
    """The message about such fields, with what to do; None without any."""
    return _elastic(spec) or _servers(spec)


def _elastic(spec: TrainingJobSpec) -> str | None:
    """The obstacle to the job's elastic bounds, with what to do; None without bounds or obstacle."""
    if spec.elastic is None:
        return None
    fewer = f"spec.elastic.minGPUs is {spec.elastic.min_gpus} of {spec.gpus} GPUs"
    if spec.elastic.min_gpus == spec.gpus:
        return None
    if spec.parameter_servers is not None:
        return f"{fewer}, and the number of its parameter servers is fixed; remove spec.elastic"
    if spec.gpu.allow_shared:
        return f"{fewer}, and of GPUs that are shared nothing is gained by fewer; remove spec.elastic, or allowShared"
    if spec.spares:
        return (
            f"{fewer}, and spec.spares would hold nodes idle on which it could train: an elastic job goes on without a "
            "lost node; remove one of them"
        )
    return None


def _servers(spec: TrainingJobSpec) -> str | None:
    """The obstacle to the job's parameter servers, with what to do; None without servers or obstacle."""
    if spec.parameter_servers is None:
        return None
    if spec.framework not in _WITH_SERVERS:
        known = " and ".join(_WITH_SERVERS)
        return f"spec.parameterServers is for {known}, and spec.framework is {spec.framework}; remove it"
    if spec.topology.gpus_per_node is None:
        return "spec.parameterServers needs spec.topology.gpusPerNode, which tells how many nodes share them; set it"
    if spec.framework is Framework.TENSORFLOW and spec.parameter_servers.replicas == 1:
        return "spec.parameterServers.replicas is 1, and of TensorFlow's the first is the chief; set 2 or more"
    return None
