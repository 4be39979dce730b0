"""Run by an interpreter that has TensorFlow: what its own resolver makes of environments. JSON in, JSON out."""

import json
import os
import sys
from typing import Any

from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.cluster_resolver import TFConfigClusterResolver


def told(environment: dict[str, str]) -> dict[str, Any]:
    """Of one task."""
    os.environ.pop("TF_CONFIG", None)
    os.environ.update(environment)
    resolver = TFConfigClusterResolver()
    spec, kind, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    found = {"cluster": spec.as_dict(), "type": kind, "index": index}
    if kind is not None:
        found["is_chief"] = multi_worker_util.is_chief(spec, kind, index)
    if kind not in (None, "ps"):  # of a server TensorFlow refuses to say it
        found["workers"] = multi_worker_util.worker_count(spec, kind)
        found["id"] = multi_worker_util.id_in_cluster(spec, kind, index)
    return found


json.dump([[told(environment) for environment in gang] for gang in json.load(sys.stdin)], sys.stdout)
