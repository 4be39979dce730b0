"""TrainingJobs on real nodes: what was planned for each rank, and what each rank says that it got."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from closeknit.api.objects import TrainingJob
from harness.node.host_python import AGENT_IMAGE
from harness.node.stand import Stand
from harness.node.trainers import DEBIAN
from harness.operator_bed import Bed

END_TIMEOUT_S = 600  # it takes 10 to 60 s of two cores; others may need them, too


@dataclass
class Jobs(Bed):
    """An operator with the two nodes of a Stand."""

    options: ClassVar[tuple[str, ...]] = (f"--sidecar-image={AGENT_IMAGE}",)
    stand: Stand = field(kw_only=True)
    begun: set[str] = field(default_factory=set, kw_only=True)

    def begin(self, namespace: str, **labels: str) -> None:
        """See Bed. A test that runs once more has another namespace than before, and nothing of its first try is left:
        what that did not finish would hold its GPUs, or be taken for its own. Nor is a file that ranks leave or wait
        for."""
        while namespace in self.begun:
            self.namespace = namespace
            self.clear()
            namespace += "-again"
        self.begun.add(namespace)
        for node in self.stand.nodes:
            for file in node.reports.glob("*"):
                file.unlink()
        super().begin(namespace, **labels)

    def clear(self) -> None:
        """Removes whatever the story has left, wherever it ended: its jobs, and Pods and claims of its own."""
        here = f"--namespace={self.namespace}"
        self.cluster.kubectl("delete", "trainingjobs", "--all", here)
        self.cluster.kubectl("delete", "pods,resourceclaims", "--all", here, "--wait=false")
        self.wait_for_nothing()

    def train(self, command: Sequence[str], *, name: str = "train", image: str = DEBIAN.image, **spec: Any) -> None:
        """Submits a job whose Pods run this command, by `kubectl apply`."""
        container = {"name": "trainer", "image": image, "command": list(command)}
        template = {"terminationGracePeriodSeconds": 1, "containers": [container]}
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
