"""The ClusterTopology examples: each gives a cluster of such nodes the levels that it says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.api.names import HOST_LEVEL
from closeknit.cluster.cluster import build
from closeknit.cluster.store.watched_kinds import from_document
from scenarios.manifests import node

EXAMPLES = sorted((Path(__file__).parents[4] / "examples" / "clustertopology").glob("*.yaml"))


def test_there_are_examples() -> None:
    assert {"alibaba-ack", "aws", "azure-aks"} < {file.stem for file in EXAMPLES}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_nodes_with_the_labels_of_an_example_are_in_its_domains(file: Path) -> None:
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    levels = [(level["name"], level["nodeLabel"]) for level in document["spec"]["levels"]]
    nodes = [node("gpu-1", labels={key: f"{name}-7" for name, key in levels}), node("gpu-2", labels={})]
    cluster = build(filter(None, map(from_document, [document, *nodes])))
    assert cluster.levels == (*(name for name, _ in levels), HOST_LEVEL)
    inner = "/".join(f"{name}-7" for name, _ in levels)
    assert cluster.nodes["gpu-1"].domains[-2:] == (inner, f"{inner}/gpu-1")
    assert cluster.nodes["gpu-2"].domains[:-1] == (None,) * len(levels)
    assert cluster.fabric.level_bandwidth_gb_s == document["spec"].get("fabric", {}).get("levelBandwidthGBps", {})


def test_what_alibaba_sets_is_read() -> None:
    labels = {"alibabacloud.com/point-of-delivery": "p1", "alibabacloud.com/asw-id": "s3"}
    (file,) = (file for file in EXAMPLES if file.stem == "alibaba-ack")
    cluster = build(filter(None, map(from_document, [yaml.safe_load(file.read_text()), node("gpu-1", labels=labels)])))
    assert cluster.nodes["gpu-1"].domains == ("p1", "p1/s3", "p1/s3/gpu-1")
