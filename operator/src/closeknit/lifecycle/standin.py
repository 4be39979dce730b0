"""Stands in for what placement's own branch brings: Tables, place and can_place with its signatures."""

from closeknit.cluster.cluster import Cluster
from closeknit.machine.graph import Machine
from closeknit.placement import place as today
from closeknit.placement.placement import NoFit, Placement
from closeknit.placement.request import Request


class Tables:
    def learn(self, machine: Machine) -> None: ...


def place(cluster: Cluster, request: Request, tables: Tables) -> Placement | NoFit:
    return today.place(cluster, request)


def can_place(cluster: Cluster, request: Request, tables: Tables) -> bool:
    return isinstance(today.place(cluster, request), Placement)
