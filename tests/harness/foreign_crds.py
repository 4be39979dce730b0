"""CustomResourceDefinitions of others, for tests: copied from their Go modules, without words and old versions.

`python -m harness.foreign_crds` writes `tests/fixtures/kueue` again, from the modules whose versions are here.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from harness.kueue_manager import KUEUE_VERSION, MODULE, module_folder
from harness.toolchain import BuildError

FOLDER = Path(__file__).parents[1] / "fixtures" / "kueue"
KUEUE, AUTOSCALER = FOLDER / "crds.yaml", FOLDER / "provisioning-request.yaml"
# Enough for quotas, flavours and priorities; Kueue's own manager reads the others, too (kueue_manager.all_crds).
KINDS = ("workloads", "resourceflavors", "workloadpriorityclasses", "clusterqueues", "localqueues")
AUTOSCALER_APIS = ("k8s.io/autoscaler/cluster-autoscaler/apis", "v0.0.0-20240830133931-adfbe7e45277")
SERVED = frozenset({"v1beta2", "v1"})
_HEAD = """\
# Copyright The Kubernetes Authors. Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0
# Of {module} {version}, {folder}; changed: without descriptions, and without v1beta1.
"""


def kueue_crds() -> list[dict[str, Any]]:
    """Kueue's definitions as they are applied."""
    return list(yaml.load_all(KUEUE.read_text(), Loader=yaml.CSafeLoader))


def provisioning_crd() -> dict[str, Any]:
    """That of the ProvisioningRequest."""
    found: dict[str, Any] = yaml.load(AUTOSCALER.read_text(), Loader=yaml.CSafeLoader)
    return found


def shortened(document: dict[str, Any]) -> dict[str, Any]:
    """A definition without descriptions and older versions."""
    versions = [each for each in document["spec"]["versions"] if each["name"] in SERVED]
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
    """Writes the files."""
    bases, config = "config/components/crd/bases", "config/crd"
    try:
        kueue, autoscaler = module_folder() / bases, module_folder(*AUTOSCALER_APIS) / config
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    own = _HEAD.format(module=MODULE, version=KUEUE_VERSION, folder=bases)
    KUEUE.write_text(own + "".join(f"---\n{_written(kueue / f'kueue.x-k8s.io_{kind}.yaml')}\n" for kind in KINDS))
    of_theirs = _HEAD.format(module=AUTOSCALER_APIS[0], version=AUTOSCALER_APIS[1], folder=config)
    document = _written(autoscaler / "autoscaling.x-k8s.io_provisioningrequests.yaml")
    AUTOSCALER.write_text(f"{of_theirs}---\n{document}\n")
    return 0


def _written(file: Path) -> str:
    document = shortened(yaml.load(file.read_text(), Loader=yaml.CSafeLoader))
    document["metadata"].get("annotations", {}).pop("controller-gen.kubebuilder.io/version", None)
    return json.dumps(document, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
