"""The seat of every rank of a job: node, GPU, Pod and coordinates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from closeknit.api.names import Role, child_name
from closeknit.api.objects import TrainingJob
from closeknit.api.trainingjob_status import Actual
from closeknit.cli.answers.job_answers import RankLine, RankList
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.jobs.told_pod import ToldPod
from closeknit.cluster.booking.booking import booking, decoded, spares
from closeknit.cluster.job_volumes import NO_VOLUMES
from closeknit.placement.ranks.coordinates import coordinates
from closeknit.placement.values.request import request


def seats(job: TrainingJob, pods: Sequence[ToldPod] | None, uuids: Mapping[int, Sequence[str]]) -> RankList:
    """The answer. `pods` None: they may not be read. `uuids`, by node rank, are those that the Pods do not tell.
    Raises NotThere where it sits nowhere."""
    placement, held = job.status.placement, booking(job)
    if placement is None or held is None:
        pending = job.status.pending
        why = f"{pending.reason}: {pending.message}" if pending is not None else "nothing is booked for it"
        state = job.status.state.value if job.status.state is not None else "Queued"
        words = f"it is {state}" if pending is None and job.status.placement is not None else why
        raise NotThere(f"{job.key} holds no GPUs: {words}; `closeknit explain` says more")
    asked = replace(request(job.key, job.spec, NO_VOLUMES.required), gpus=held.gpus)
    by_name = {each.name: each for each in pods or ()}
    attempt = job.status.attempt or 1
    items: list[RankLine] = []
    workers = [share for share in decoded(placement) if share.server is None]
    for node_rank, share in enumerate(workers):
        name = child_name(job.key.name, attempt, Role.WORKER, node_rank, share.replacement)
        pod = by_name.get(name)
        known = pod.uuids if pod is not None and len(pod.uuids) == len(share.gpus) else uuids.get(node_rank, ())
        for local, gpu in enumerate(share.gpus):
            rank = share.first_rank + local
            uuid = share.mig_device or (known[local] if local < len(known) else "")
            items.append(
                RankLine(
                    rank=rank,
                    local_rank=local,
                    node_rank=node_rank,
                    node=share.node,
                    gpu=gpu,
                    uuid=uuid or None,
                    pod=name,
                    pod_status=pod.status if pod is not None else None,
                    coordinates=coordinates(rank, asked)._asdict(),
                )
            )
    told = {share.actual for share in workers}
    return RankList(
        namespace=job.key.namespace,
        name=job.key.name,
        state=(job.status.state.value if job.status.state is not None else "Queued"),
        attempt=attempt,
        gpus_verified=False if Actual.MISMATCH in told else True if told == {Actual.VERIFIED} else None,
        items=tuple(items),
        spares=tuple(share.node for share in spares(placement)),
    )
