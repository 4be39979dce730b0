"""closeknit-operator: the command."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path

from closeknit.controller import kopf_operator
from closeknit.controller.gauges.ranks import LIMIT
from closeknit.controller.leader.leadership import Election
from closeknit.controller.process import Process
from closeknit.kube.errors import LoginError
from closeknit.kube.http.http_api import HttpApi
from closeknit.kube.lease import SENT_WITHIN_S
from closeknit.lifecycle.capacity.capacity_news import NEVER, CapacityPolicy
from closeknit.lifecycle.capacity.gang_shape import NodeGroup, node_groups
from closeknit.lifecycle.device_taints import DeviceTaints
from closeknit.runtime import logs
from closeknit.runtime.access import Access
from closeknit.runtime.address import Address
from closeknit.runtime.serving import Certificate, CertificateError, MountedCertificate, OwnCertificate

REVIEW_TIMEOUT_S = 4.0  # twice that, and what goes before it, is less than the 10 s that a scraper waits

_log = logging.getLogger("closeknit.controller")


def main(arguments: list[str] | None = None) -> int:
    """Runs the operator until it is told to end. Gives 0 then, 1 after a failure, 2 if it cannot even begin."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on it ends in order
    logs.configure(logs.LogFormat(options.log_format), logs.LogLevel(options.log_level))
    if options.kubeconfig is not None:
        if not options.kubeconfig.is_file():
            print(f"closeknit-operator: --kubeconfig {options.kubeconfig}: no such file", file=sys.stderr)
            return 2
        os.environ["KUBECONFIG"] = str(options.kubeconfig)  # where kopf and the kubernetes library look
    try:
        asyncio.run(_run(options))
    except (LoginError, CertificateError, OSError) as error:
        print(f"closeknit-operator: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


async def _run(options: argparse.Namespace) -> None:
    metrics_address: Address = options.metrics_address
    user_agent = f"closeknit-operator/{version('closeknit')}"
    async with AsyncExitStack() as ends:
        api = await ends.enter_async_context(await HttpApi.connect(user_agent=user_agent, sent_within_s=SENT_WITHIN_S))
        access: Access | None = None
        certificate: Certificate | None = None
        if options.metrics_certificate is not None:
            certificate = MountedCertificate(options.metrics_certificate)
        if not metrics_address.is_loopback:
            certificate = certificate or await OwnCertificate.made()
            # Connections of its own: requests for metrics take none from those that write Pods.
            reviews = await HttpApi.connect(user_agent=user_agent, request_timeout_s=REVIEW_TIMEOUT_S)
            access = Access(await ends.enter_async_context(reviews))
        namespace = options.leader_elect_namespace or api.namespace
        election = Election.of_this_process(namespace) if options.leader_elect else None
        process = Process(
            api,
            metrics_address,
            access,
            election,
            sidecar_image=options.sidecar_image,
            force_deletes=options.force_delete_pods,
            device_taints=DeviceTaints(options.device_taints),
            capacity=CapacityPolicy(options.provisioning_class, options.node_groups, options.placeholder_image),
            rank_info_limit=options.rank_info_limit,
            certificate=certificate,
            shows_map=options.shows_map,
        )
        await kopf_operator.run(process)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="closeknit-operator", description="Places TrainingJobs and looks after them.")
    parser.add_argument("--kubeconfig", type=Path, help="how to reach the API server; default: as kubectl finds it")
    parser.add_argument(
        "--metrics-address",
        type=_address,
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="where to serve /healthz, /readyz, /metrics and /map/ (default %(default)s); beyond localhost by HTTPS, "
        "and /metrics and the map's data need a token that may get them",
    )
    parser.add_argument(
        "--metrics-certificate",
        type=Path,
        metavar="FOLDER",
        help="serve by HTTPS with its tls.crt and tls.key, which are read again when they change; default: plain HTTP "
        "on localhost, beyond it a certificate that the process makes itself",
    )
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="decide only while holding the Lease closeknit-operator, so that several replicas can run; without it "
        "this process must be the only one",
    )
    parser.add_argument(
        "--leader-elect-namespace",
        metavar="NAMESPACE",
        help="where that Lease is; default: the Pod's own namespace, or the one of the kubeconfig's context",
    )
    parser.add_argument(
        "--sidecar-image",
        default="",
        metavar="IMAGE",
        help="image with closeknit-sidecar, by which gangs restart in place; default: none, they restart in new Pods",
    )
    parser.add_argument(
        "--force-delete-pods",
        action="store_true",
        help="delete the Pods of jobs by force on a node that is silent and whose condition Ready is Unknown, once "
        "they are deleted and their grace period is over; without it they stay until the node is back or gone, and "
        "nothing waits for them",
    )
    parser.add_argument(
        "--device-taints",
        choices=[each.value for each in DeviceTaints],
        default=DeviceTaints.NEVER.value,
        help="tell others of GPUs that agents call unhealthy by DeviceTaintRules: with the effect None (DryRun), or "
        "NoSchedule; default %(default)s",
    )
    parser.add_argument(
        "--provisioning-class",
        default=NEVER,
        metavar="CLASS",
        help="the class of ProvisioningRequest by which jobs that wait for nodes ask for them, or PlaceholderPods, "
        "unless a job's annotation says another; default %(default)s",
    )
    parser.add_argument(
        "--placeholder-image",
        default="",
        metavar="IMAGE",
        help="image with Python for placeholder Pods, by which jobs of the class PlaceholderPods ask for nodes; "
        "default: none, they ask for nothing",
    )
    parser.add_argument(
        "--node-groups",
        type=_node_groups,
        default=(),
        metavar="JSON",
        help="node groups of which no node may be there, a list of {name, gpus, product, labels}: jobs that they could "
        "hold ask for nodes, too",
    )
    parser.add_argument(
        "--rank-info-limit",
        type=_count,
        default=LIMIT,
        metavar="RANKS",
        help="show closeknit_rank_info, which has names of jobs and namespaces, while there are at most so many ranks "
        "(default %(default)s); 0: never",
    )
    parser.add_argument(
        "--no-map",
        dest="shows_map",
        action="store_false",
        help="serve no web map; by default it is at /map/, and its data needs a token that may get /map/stream",
    )
    formats, levels = ([each.value for each in kind] for kind in (logs.LogFormat, logs.LogLevel))
    parser.add_argument("--log-format", choices=formats, default="plain", help="default %(default)s")
    parser.add_argument(
        "--log-level", choices=levels, default="info", help="the least that is logged; default %(default)s"
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('closeknit')}")
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks, such as {LIMIT}, or 0 for none")
    return int(text)


def _node_groups(text: str) -> tuple[NodeGroup, ...]:
    try:
        return node_groups(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no list of node groups: {error}") from None


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
