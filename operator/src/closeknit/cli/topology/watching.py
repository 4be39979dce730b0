"""One machine of the cluster with what its GPUs do at the moment, again and again."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from pydantic import ValidationError
from rich.console import Console
from rich.live import Live

from closeknit.api.objects import NodeTopology
from closeknit.api.printable import printable
from closeknit.cli.topology.agents import Agent
from closeknit.cli.topology.live import NODE_TOPOLOGIES
from closeknit.cli.topology.moment import Moment
from closeknit.cli.topology.not_there import NotThere
from closeknit.cli.topology.sheet import Sheet
from closeknit.cli.topology.tables import WIDTH, on_screen, page
from closeknit.kube.errors import ApiError, NotFound
from closeknit.kube.http import HttpApi
from closeknit.kube.login import LoginError

EVERY_S = 2.0  # an agent asks its driver once a second at most


async def watch(node: str, kubeconfig: Path | None, as_sheet: Callable[[NodeTopology], Sheet]) -> None:
    """Shows it until somebody interrupts; once, where nobody looks but a program reads. Raises NotThere."""
    console = Console()
    try:
        async with await HttpApi.connect(user_agent="closeknit", kubeconfig=kubeconfig) as api:
            agent = await Agent.of(api, node)

            async def look() -> tuple[Sheet, Mapping[int, Moment]]:
                topology = NodeTopology.parse(await api.get(NODE_TOPOLOGIES, node))
                return as_sheet(topology), await agent.moments()

            if not console.is_terminal:
                Console(width=WIDTH).print(page(*await look()))
                return
            with Live(console=console, auto_refresh=False, screen=False) as shown:
                while True:
                    shown.update(on_screen(*await look(), console), refresh=True)
                    await asyncio.sleep(EVERY_S)
    except NotFound:
        raise NotThere(printable(f"the cluster has no NodeTopology {node}, or its agent has gone")) from None
    except (LoginError, ApiError, OSError, msgspec.DecodeError) as error:
        raise NotThere(printable(f"cannot ask the cluster: {' '.join(str(error).split())}")) from None
    except ValidationError as error:
        raise NotThere(printable(f"the NodeTopology {node} cannot be read: {' '.join(str(error).split())}")) from None
