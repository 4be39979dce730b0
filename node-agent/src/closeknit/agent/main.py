"""`closeknit-agent`: measures a node and publishes what it found, or writes a dump of it."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from closeknit.agent.discovery.health.driver import failure
from closeknit.agent.discovery.readings.dump import encode
from closeknit.agent.sources.recorded import RecordedSource
from closeknit.agent.sources.source import Source, SourceError
from closeknit.api.nodetopology import Method
from closeknit.runtime import logs
from closeknit.runtime.address import Address
from closeknit.runtime.trimmed import give_back

if TYPE_CHECKING:
    from closeknit.agent.kubelet.kubelet_source import KubeletSource
    from closeknit.agent.node_agent import Agent
    from closeknit.kube.api import Api

# With the 3 s for a GPU that hangs less than 10 s until anything is told; the states of 144 links take 16 ms of a core.
READING_S = 6.0
EXIT_BAD_INPUT = 2  # starting again does not help
REVIEW_TIMEOUT_S = 3.0  # twice that, and 3 s for the GPUs, is less than the 10 s that a scraper waits

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class SourceName(StrEnum):
    """Where the facts come from."""

    NVML = "nvml"
    RECORDED = "recorded"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One agent of this process."""

    node: str
    source: Source
    kubeconfig: Path | None
    pod_resources: Path | None = None
    """Socket of the kubelet; None not to ask it who holds which GPUs."""
    pod: tuple[str, str] | None = None
    """Namespace and name of the Pod that this runs in."""


Root = Annotated[Path, typer.Option(help="Folder below which the host's sys and proc are found.")]


@app.callback(invoke_without_command=True)
def run(  # noqa: PLR0913 -- one argument for each option
    context: typer.Context,
    *,
    source: Annotated[SourceName, typer.Option(help="Where the facts come from.")] = SourceName.NVML,
    node: Annotated[str | None, typer.Option(envvar="NODE_NAME", help="Name of the Node to publish for.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="How to reach the cluster; not needed in a Pod.")] = None,
    dump_file: Annotated[Path | None, typer.Option("--dump", help="Dump file of --source recorded.")] = None,
    profile: Annotated[str | None, typer.Option(help="Machine profile of --source simulated.")] = None,
    faults: Annotated[str, typer.Option(help="What is broken in that machine, YAML: '{deadGPUs: [2]}'.")] = "{}",
    root: Root = Path("/"),
    pod_resources: Annotated[
        Path | None, typer.Option(help="The kubelet's PodResources socket: it is then asked who holds which GPUs.")
    ] = None,
    pod: Annotated[
        str | None, typer.Option(envvar="POD", help="NAMESPACE/NAME of the agent's own Pod, whose GPUs nobody holds.")
    ] = None,
    simulate: Annotated[Path | None, typer.Option(help="Fleet file: play the agents of all its nodes.")] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two readings.")] = READING_S,
    metrics_address: Annotated[
        str | None,
        typer.Option(
            help="Where to serve /healthz, /readyz and /metrics; beyond localhost by HTTPS, and /metrics needs a token."
        ),
    ] = None,
    metrics_certificate: Annotated[
        Path | None,
        typer.Option(help="Serve by HTTPS with tls.crt and tls.key of this folder, which may be renewed."),
    ] = None,
    log_format: Annotated[logs.LogFormat, typer.Option(help="How a log entry is written.")] = logs.LogFormat.PLAIN,
    log_level: Annotated[logs.LogLevel, typer.Option(help="The least that is logged.")] = logs.LogLevel.INFO,
) -> None:
    """Measure this node again and again, and publish what changed as Node labels and a NodeTopology."""
    if context.invoked_subcommand is not None:
        return
    try:
        if simulate is not None:
            members = _fleet(simulate)
        else:
            found = _source(source, node or "", root, dump_file, profile, faults)
            members = [_member(node, kubeconfig, found, pod_resources, pod)]
        for member in members:
            _check(member)
        address = _address(metrics_address, is_fleet=simulate is not None)
    except (SourceError, ValueError) as error:
        _refuse(error)
    # Nothing is left to be done: what was published stays. Not even a driver that hangs may delay the end.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    logs.configure(log_format, log_level)
    try:
        asyncio.run(_run_all(members, interval, address, metrics_certificate))
    except KeyboardInterrupt:
        os._exit(130)


@app.command("dump")
def write_dump(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output if not given.")
    ] = None,
    root: Root = Path("/"),
) -> None:
    """Write what NVML and sysfs say about this machine as JSON; it holds uuids, but no serial numbers."""
    try:
        readings = _source(SourceName.NVML, "", root, None, None).read()
        text = encode(readings)
        if output is None:
            sys.stdout.buffer.write(text)
        else:
            output.write_bytes(text)
    except (SourceError, OSError) as error:
        _refuse(error)
    failed = failure(readings)
    if failed is not None:
        print(f"closeknit-agent: no GPU could be read: {failed.message}", file=sys.stderr)


async def _run_all(
    members: Sequence[AgentSpec], interval_s: float, address: Address | None, certificate: Path | None
) -> None:
    from closeknit.agent.node_agent import Agent  # noqa: PLC0415 -- `dump` runs where the Kubernetes client is not installed
    from closeknit.agent.publish import Publisher  # noqa: PLC0415
    from closeknit.kube.http.http_api import HttpApi  # noqa: PLC0415

    agent_version = _version()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        agents = []
        for member in members:
            user_agent = f"closeknit-agent/{agent_version or 'unknown'}"
            try:
                api = await HttpApi.connect(user_agent=user_agent, kubeconfig=member.kubeconfig)
            except Exception as error:  # the library raises whatever its parsers raise
                _refuse(f"node {member.node}: no way to the cluster: {error}")
            await stack.enter_async_context(api)
            publisher = Publisher(api, member.node, agent_version=agent_version)
            kubelet = None if member.pod_resources is None else _kubelet(stack, member.pod_resources, api, member)
            agents.append(Agent(member.node, member.source, publisher, interval_s=interval_s, kubelet=kubelet))
        for agent in agents:
            group.create_task(agent.run())
        if address is not None:
            ((member, agent),) = zip(members, agents, strict=True)
            await _serve(stack, address, certificate, member, agent, user_agent)
        give_back()


def _kubelet(stack: AsyncExitStack, socket: Path, api: "Api", member: AgentSpec) -> "KubeletSource":
    """The kubelet of the member's node, asked until the stack ends."""
    # An agent that does not ask needs not its client, which takes 4 MB.
    from closeknit.agent.kubelet.kubelet_source import KubeletSource  # noqa: PLC0415
    from closeknit.agent.kubelet.pod_resources import PodResources  # noqa: PLC0415
    from closeknit.agent.kubelet.slices import gpu_uuids  # noqa: PLC0415

    pods = PodResources(socket)
    stack.callback(pods.close)
    return KubeletSource(pods, partial(gpu_uuids, api, member.node), member.pod)


async def _serve(
    stack: AsyncExitStack,
    address: Address,
    folder: Path | None,
    member: AgentSpec,
    agent: "Agent",
    user_agent: str,
) -> None:
    """Serves health and live values until the stack ends."""
    # An agent that serves nothing needs none of their memory.
    from closeknit.agent.metrics import GpuMetrics  # noqa: PLC0415
    from closeknit.kube.http.http_api import HttpApi  # noqa: PLC0415
    from closeknit.runtime.access import Access  # noqa: PLC0415
    from closeknit.runtime.serving import Certificate, CertificateError, MountedCertificate, OwnCertificate  # noqa: PLC0415
    from closeknit.runtime.web import WebServer  # noqa: PLC0415

    access = None
    if not address.is_loopback:
        # Connections of its own: requests for metrics take none from publishing.
        reviews = await HttpApi.connect(
            user_agent=user_agent, kubeconfig=member.kubeconfig, request_timeout_s=REVIEW_TIMEOUT_S
        )
        access = Access(await stack.enter_async_context(reviews))
    certificate: Certificate | None = None
    try:
        if folder is not None:
            certificate = MountedCertificate(folder)
        elif not address.is_loopback:
            certificate = await OwnCertificate.made()
    except (CertificateError, OSError) as error:
        _refuse(error)
    metrics = GpuMetrics(member.source, member.node, agent.gpus)
    server = WebServer(address, agent, metrics.registry, access, metrics.refresh, certificate=certificate)
    try:
        await server.start()
    except OSError as error:
        _refuse(f"cannot listen on {address.host}:{address.port}: {error}")
    stack.push_async_callback(server.stop)


def _source(
    name: SourceName, node: str, root: Path, dump_file: Path | None, profile: str | None, faults: str = "{}"
) -> Source:
    """The source that the options name. Raises ValueError and SourceError."""
    match name:
        case SourceName.NVML:
            from closeknit.agent.sources.hardware import HardwareSource  # noqa: PLC0415 -- needs nvidia-ml-py

            return HardwareSource(root)
        case SourceName.RECORDED:
            if dump_file is None:
                raise ValueError("--source recorded needs --dump FILE")
            return RecordedSource(dump_file)
        case SourceName.SIMULATED:
            from closeknit.agent.sources.simulated import SimulatedSource, load_faults, load_profile  # noqa: PLC0415 -- needs ryaml

            if profile is None:
                raise ValueError("--source simulated needs --profile NAME")
            return SimulatedSource(load_profile(profile), node, load_faults(faults), root)


def _check(member: AgentSpec) -> None:
    """What cannot work at all is said before anything is written. Raises SourceError and ValueError."""
    if member.source.method is not Method.NVML:  # hardware that cannot be read is published as such
        member.source.read()
    if member.kubeconfig is not None and not member.kubeconfig.is_file():
        raise ValueError(f"node {member.node}: there is no kubeconfig {member.kubeconfig}")


def _address(text: str | None, *, is_fleet: bool) -> Address | None:
    """Where to serve, if anywhere. Raises ValueError."""
    if text is not None and is_fleet:
        raise ValueError("--metrics-address serves the GPUs of one node, and --simulate plays many")
    return None if text is None else Address.parse(text)


def _member(
    node: str | None, kubeconfig: Path | None, source: Source, pod_resources: Path | None, pod: str | None
) -> AgentSpec:
    if not node:
        raise ValueError("which Node is this? Give --node NAME, or set NODE_NAME")
    namespace, parted, name = (pod or "").partition("/")
    if pod is not None and not (namespace and parted and name):
        raise ValueError(f"--pod wants NAMESPACE/NAME, and not {pod!r}")
    return AgentSpec(node, source, kubeconfig, pod_resources, (namespace, name) if pod is not None else None)


def _fleet(path: Path) -> list[AgentSpec]:
    from closeknit.agent.sources.fleet import load_fleet  # noqa: PLC0415 -- needs ryaml

    return [AgentSpec(node.name, source, Path(node.kubeconfig)) for node, source in load_fleet(path)]


def _version() -> str | None:
    try:
        return version("closeknit")
    except PackageNotFoundError:  # run from the sources
        return None


def _refuse(error: object) -> NoReturn:
    print(f"closeknit-agent: {error}", file=sys.stderr)
    raise SystemExit(EXIT_BAD_INPUT)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
