"""TrainingJobs on real nodes: what was planned for each rank, and what each rank says that it got."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closeknit.api.objects import TrainingJob
from harness.node.stand import TRAINER_IMAGE, Stand
from harness.operator_bed import Bed

SCRIPTS = Path(__file__).parent / "scripts"
END_TIMEOUT_S = 150  # eight processes import PyTorch on two cores: 15 s; a loaded machine may take ten times that


@dataclass
class Jobs(Bed):
    """An operator with the two nodes of a Stand."""

    stand: Stand = field(kw_only=True)

    def train(self, command: Sequence[str], *, name: str = "train", image: str = TRAINER_IMAGE, **spec: Any) -> None:
        """Submits a job whose Pods run this command beside /scripts, by `kubectl apply`."""
        scripts = {file.name: file.read_text() for file in SCRIPTS.iterdir() if file.is_file()}
        metadata = {"name": "scripts", "namespace": self.namespace}
        self.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": scripts})
        container = {
            "name": "trainer",
            "image": image,
            "command": list(command),
            "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
        }
        template = {
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "scripts", "configMap": {"name": "scripts"}}],
        }
        self.submit(name, template={"spec": template}, **spec)

    def wait_for_end(self, state: str, name: str = "train") -> dict[str, Any]:
        """The job's status once it has Succeeded or Failed, which is to be `state`."""

        def status() -> dict[str, Any] | None:
            found: dict[str, Any] = self.job(name)["status"]
            return found if found.get("state") in ("Succeeded", "Failed") else None

        found = self.cluster.wait_for(status, f"{name} to end", END_TIMEOUT_S)
        assert found["state"] == state, "\n".join(f"{pod}:\n{self.log(pod)}" for pod in self.names("pods"))
        return found

    def placement(self, name: str = "train") -> TrainingJob:
        """The job with its placement."""
        return TrainingJob.parse(self.cluster.wait_for(lambda: self._placed(name), f"{name} to be placed"))

    def log(self, pod: str) -> str:
        """What a Pod has said so far; nothing where it is gone."""
        return self.cluster.kubectl("logs", pod, f"--namespace={self.namespace}", check=False)

    def condition(self, kind: str, name: str = "train") -> Mapping[str, Any]:
        """A condition of the job; empty where it has none of this kind."""
        conditions = self.job(name)["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def _placed(self, name: str) -> dict[str, Any] | None:
        job = self.job(name)
        return job if job["status"].get("placement") else None


def reports(log: str) -> list[dict[str, Any]]:
    """What the ranks of one Pod said of themselves (scripts/report.py), by local rank."""
    found = [json.loads(line) for line in log.splitlines() if line.startswith('{"report"')]
    return sorted((each["report"] for each in found), key=lambda each: int(each["local_rank"]))
