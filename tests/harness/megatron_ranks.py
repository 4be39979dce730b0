"""Records which process groups Megatron-Core forms, from its own source; tests/fixtures/megatron says how it was run.

`python -m harness.megatron_ranks megatron_core-*.tar.gz` prints the recording as JSON. Of the archive one module is
run, megatron/core/parallel_state.py: its `initialize_model_parallel` makes its RankGenerators and forms all groups. It
is pure Python but for torch and numpy, which are stood in for: what it hands to `torch.distributed.new_group` is kept.
"""

import json
import re
import sys
import tarfile
import types
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

MODULE = "megatron/core/parallel_state.py"
DEFAULT_ORDER = "tp-cp-ep-dp-pp"
OTHER_ORDER = "tp-cp-ep-pp-dp"  # of Megatron's flag --use-tp-pp-dp-mapping
GROUPS = {
    "tensor": "TENSOR_MODEL_PARALLEL_GROUP",
    "context": "CONTEXT_PARALLEL_GROUP",
    "data": "DATA_PARALLEL_GROUP",
    "pipeline": "PIPELINE_MODEL_PARALLEL_GROUP",
    "expert": "EXPERT_MODEL_PARALLEL_GROUP",
}


def cases() -> list[dict[str, Any]]:
    """Degrees and orders of which the groups are recorded: experts must divide what tensor and pipeline leave."""
    found = [
        {"tensor": tensor, "context": context, "data": data, "pipeline": pipeline, "expert": expert}
        for tensor, context, data, pipeline in product((1, 2, 4), (1, 3), (1, 2, 4), (1, 2))
        for expert in (1, 2, 3, 4, 8)
        if context * data % expert == 0
    ]
    found.append({"tensor": 8, "context": 1, "data": 2, "pipeline": 4, "expert": 2})
    others = [{"tensor": 2, "context": 1, "data": data, "pipeline": 2, "expert": 1} for data in (2, 4)]
    return [{"order": DEFAULT_ORDER, **case} for case in found] + [{"order": OTHER_ORDER, **case} for case in others]


def groups(source: str, case: dict[str, Any]) -> dict[str, list[list[int]]]:
    """The groups of each axis as Megatron forms them, in its order, in a job of the degrees of `case`."""
    formed: list[tuple[str, list[int]]] = []
    torch = mock.MagicMock(name="torch")
    torch.distributed.get_world_size.return_value = case["tensor"] * case["context"] * case["data"] * case["pipeline"]
    torch.distributed.get_rank.return_value = 0
    torch.distributed.new_group.side_effect = lambda ranks, group_desc, **_: formed.append((group_desc, list(ranks)))
    utils = mock.MagicMock(name="megatron.core.utils", is_torch_min_version=lambda _version: True)
    modules = {
        "torch": torch,
        "numpy": mock.MagicMock(name="numpy"),
        "megatron": types.ModuleType("megatron"),
        "megatron.core": types.ModuleType("megatron.core"),
        "megatron.core.utils": utils,
    }
    state: dict[str, Any] = {"__name__": "megatron.core.parallel_state", "__package__": "megatron.core"}
    with mock.patch.dict(sys.modules, modules):
        exec(compile(source, MODULE, "exec"), state)  # noqa: S102 - what this script is for
        state["initialize_model_parallel"](
            tensor_model_parallel_size=case["tensor"],
            context_parallel_size=case["context"],
            pipeline_model_parallel_size=case["pipeline"],
            expert_model_parallel_size=case["expert"],
            order=case["order"],
            create_gloo_process_groups=False,
        )
    return {axis: [ranks for said, ranks in formed if said == name] for axis, name in GROUPS.items()}


def main(archive: Path) -> None:
    """Prints the recording, a line for each case."""
    with tarfile.open(archive) as opened:
        root = opened.getnames()[0].partition("/")[0]
        member, metadata = opened.extractfile(f"{root}/{MODULE}"), opened.extractfile(f"{root}/PKG-INFO")
        assert member is not None and metadata is not None
        source, about = member.read().decode(), metadata.read().decode()
    fields = {name: re.search(rf"^{name}: (.+)$", about, re.MULTILINE) for name in ("Version", "License")}
    version, licence = (found[1] if found else "unknown" for found in fields.values())
    print(f'{{"megatron-core": {json.dumps(version)}, "license": {json.dumps(licence)}, "recorded": [')
    lines = [json.dumps({**case, "groups": groups(source, case)}, separators=(",", ":")) for case in cases()]
    print(",\n".join(lines))
    print("]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
