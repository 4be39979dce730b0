"""An API server with the busy cluster of the examples, for clients that come by a kubeconfig."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from closeknit.kube.api import Resource
from faults.http_store import HttpStore, stored
from faults.kinds import STOCK_KINDS, Kind
from faults.store import Store

FILE = Path(__file__).parents[3] / "examples/clusters/busy.yaml"
KINDS = (
    *STOCK_KINDS,
    Kind(Resource("", "v1", "events"), "Event", fields=("involvedObject.uid",)),
    Kind(Resource("", "v1", "limitranges"), "LimitRange"),
)
BY_KIND = {kind.kind: kind.resource for kind in KINDS if kind.resource.group != "events.k8s.io"}


@pytest.fixture(scope="session")
def busy() -> list[dict[str, object]]:
    """Its objects."""
    return list(yaml.safe_load_all(FILE.read_text()))


@pytest.fixture
def server(tmp_path: Path, busy: list[dict[str, object]]) -> Iterator[HttpStore]:
    with stored(tmp_path, Store(KINDS)) as found:
        for each in copy.deepcopy(busy):
            found.put(BY_KIND[str(each["kind"])], each)
        yield found
