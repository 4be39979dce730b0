"""One machine of the cluster with what its GPUs do at the moment, again and again."""

import asyncio
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.live import Live

from closeknit.api.objects import NodeTopology
from closeknit.cli.input.given import Reach
from closeknit.cli.live.cluster_objects import asking
from closeknit.cli.output.outlet import left_tidy
from closeknit.cli.topology.agents import AgentMetrics
from closeknit.cli.topology.gpu_activity import GpuActivity
from closeknit.cli.topology.live_machines import one
from closeknit.cli.topology.machine_sheet import MachineSheet
from closeknit.cli.topology.machine_table import WIDTH, on_screen, page

EVERY_S = 2.0  # an agent asks its driver once a second at most


async def watch(node: str, reach: Reach, as_sheet: Callable[[NodeTopology], MachineSheet]) -> None:
    """Shows it until an interrupt; once, if a program reads the output. Raises NotThere."""
    console = Console()
    missing = f"the cluster has no NodeTopology {node}, or its agent has gone"
    async with asking(reach, missing=missing) as api:
        agent = await AgentMetrics.of(api, node)

        async def look() -> tuple[MachineSheet, Mapping[int, GpuActivity]]:
            return as_sheet(await one(api, node)), await agent.moments()

        if not console.is_terminal:
            Console(width=WIDTH).print(page(*await look()))
            return
        with left_tidy(), Live(console=console, auto_refresh=False, screen=False) as shown:
            while True:
                shown.update(on_screen(*await look(), console), refresh=True)
                await asyncio.sleep(EVERY_S)
