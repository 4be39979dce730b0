"""Kueue's own CustomResourceDefinitions, for tests: copied from its Go module, without words and old versions.

`python -m harness.kueue_crds` writes `tests/fixtures/kueue/crds.yaml` again, from the module that `kueue_manager` pins.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from harness.kueue_manager import KUEUE_VERSION, module_folder
from harness.toolchain import BuildError

FILE = Path(__file__).parents[1] / "fixtures" / "kueue" / "crds.yaml"
# Enough for quotas, flavours and priorities; Kueue's own manager reads the others, too (kueue_manager.all_crds).
KINDS = ("workloads", "resourceflavors", "workloadpriorityclasses", "clusterqueues", "localqueues")
SERVED = "v1beta2"
_HEAD = f"""\
# Copyright The Kubernetes Authors. Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0
# Of sigs.k8s.io/kueue {KUEUE_VERSION}, config/components/crd/bases; changed: without descriptions, and without v1beta1.
"""


def crds() -> list[dict[str, Any]]:
    """The definitions as they are applied."""
    return list(yaml.load_all(FILE.read_text(), Loader=yaml.CSafeLoader))


def shortened(document: dict[str, Any]) -> dict[str, Any]:
    """A definition without descriptions and older versions."""
    versions = [each for each in document["spec"]["versions"] if each["name"] == SERVED]
    found: dict[str, Any] = _without_words({**document, "spec": {**document["spec"], "versions": versions}})
    return found


def _without_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_words(each)
            for key, each in value.items()
            if not (key == "description" and isinstance(each, str))
        }
    return [_without_words(each) for each in value] if isinstance(value, list) else value


def main() -> int:
    """Writes the file."""
    try:
        folder = module_folder() / "config" / "components" / "crd" / "bases"
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    parts = []
    for kind in KINDS:
        document = yaml.load((folder / f"kueue.x-k8s.io_{kind}.yaml").read_text(), Loader=yaml.CSafeLoader)
        parts.append(json.dumps(shortened(document), separators=(",", ":")))
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(_HEAD + "".join(f"---\n{part}\n" for part in parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
