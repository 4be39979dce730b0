"""The switch that the nodes of a test hang on, and the two doors between its network and the machine's.

Started as `python switch.py API_PORT SOCKET`. It makes a network namespace with a bridge in it, which routes between
the Pods of all nodes; nobody outside sees it, and it is gone with this process. It prints the path of that namespace
once it stands. Two doors lead through, both for TCP alone:

- whoever connects in there to the address of the Service `kubernetes` gets the API server of the machine's 127.0.0.1;
- whoever connects out here to SOCKET and says CONNECT host:port gets that address in there: how the API server reaches
  kubelets (`kubectl logs`) and webhooks, as in a cluster whose control plane is not on the nodes' network.
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a file, without an environment

from harness.node import namespaces
from harness.node.site import API_ADDRESS, DNS_ADDRESS, GATEWAY, NODES_AT_MOST, node_address, pod_network

MAX_REQUEST_BYTES = 4096
ETHERNET_ADDRESS = "02:00:00:00:00:01"  # locally administered


class Switch:
    """The namespace, as descriptors: of the network in there, and of the machine's own."""

    def __init__(self) -> None:
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        namespaces.unshare(namespaces.NEW_NETWORK)
        self._inside = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.path = f"/proc/{os.getpid()}/fd/{self._inside}"
        # A node's Pods are behind the node. The routes of all nodes that there can be, so that none need be added.
        routes = [f"route add {pod_network(n)} via {node_address(n)}" for n in range(1, NODES_AT_MOST + 1)]
        commands = [
            "link set lo up",
            f"address add {API_ADDRESS}/32 dev lo",
            f"address add {DNS_ADDRESS}/32 dev lo",  # whoever serves it is started in here
            # With an address of its own: else it takes the lowest of its ports, another one whenever a node joins, and
            # the nodes that are there lose the API server until they ask for it again, for a minute at worst.
            f"link add switch address {ETHERNET_ADDRESS} type bridge",
            f"address add {GATEWAY}/24 dev switch",
            "link set switch up",
            *routes,
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), text=True, check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self.api = socket.create_server((API_ADDRESS, 443))
        namespaces.enter_network(self._outside)

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection in there. Raises OSError."""
        namespaces.enter_network(self._inside)
        try:
            end = socket.socket()  # a socket belongs to the network that it was made in
        finally:
            namespaces.enter_network(self._outside)
        end.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(end, (host, port))
            return await asyncio.open_connection(sock=end)
        except BaseException:
            end.close()
            raise


async def _serve(switch: Switch, api_port: int, door: str) -> None:
    async def inwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            target = request.removeprefix(b"CONNECT ").split(maxsplit=1)[0]  # of another method it is no host and port
            host, _, port = target.decode().rpartition(":")
            there = await switch.connect(host, int(port))
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            writer.write(f"HTTP/1.1 502 Bad Gateway\r\n\r\n{error}".encode())
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _join((reader, writer), there)

    async def outwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", api_port)
        except OSError:
            writer.close()
            return
        await _join((reader, writer), there)

    await asyncio.start_unix_server(inwards, door, limit=MAX_REQUEST_BYTES)
    await asyncio.start_server(outwards, sock=switch.api)
    print(switch.path, flush=True)
    await asyncio.Event().wait()


async def _join(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Passes on what each side says until both have ended."""
    await asyncio.gather(_pass_on(one[0], other[1]), _pass_on(other[0], one[1]))
    for _, writer in (one, other):
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:  # one of them has gone
        writer.close()


if __name__ == "__main__":
    asyncio.run(_serve(Switch(), int(sys.argv[1]), sys.argv[2]))
