"""NodeTopologies of a running cluster, as kubectl would reach it."""

from pathlib import Path

import msgspec
from pydantic import ValidationError

from closeknit.api.names import GROUP, VERSION
from closeknit.api.objects import NodeTopology
from closeknit.api.printable import printable
from closeknit.cli.topology.not_there import NotThere
from closeknit.kube.api import Resource
from closeknit.kube.errors import ApiError, NotFound
from closeknit.kube.http import HttpApi
from closeknit.kube.login import LoginError

NODE_TOPOLOGIES = Resource(GROUP, VERSION, "nodetopologies", namespaced=False)


async def node_topologies(node: str | None, kubeconfig: Path | None) -> list[NodeTopology]:
    """That of one node, or all, by name. Raises NotThere."""
    try:
        async with await HttpApi.connect(user_agent="closeknit", kubeconfig=kubeconfig) as api:
            if node is not None:
                return [NodeTopology.parse(await api.get(NODE_TOPOLOGIES, node))]
            found: list[NodeTopology] = []
            token: str | None = None
            while True:
                page = await api.list(NODE_TOPOLOGIES, continue_token=token)
                found += [NodeTopology.parse(msgspec.json.decode(item)) for item in page.items]
                token = page.continue_token
                if token is None:
                    return found
    except NotFound:
        what = f"no NodeTopology {node}" if node is not None else "no NodeTopologies"
        words = f"the cluster has {what}: is closeknit installed, and does its agent run on that node?"
        raise NotThere(printable(words)) from None
    except (LoginError, ApiError, OSError) as error:
        raise NotThere(printable(f"cannot ask the cluster: {' '.join(str(error).split())}")) from None
    except (msgspec.DecodeError, ValidationError) as error:
        raise NotThere(printable(f"a NodeTopology cannot be read: {' '.join(str(error).split())}")) from None
