"""`python -m harness.node.walk`: what an administrator does with closeknit on two real nodes, and how long it takes.

Install, first job, why not, the chart's own test, upgrade, rollback, uninstall. tests/node/test_installed.py takes the
same steps and looks at what each leaves. Seconds count from when the command was given to what its line says.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from harness.chart import CHART, HelmError
from harness.images import AGENT, NoImages
from harness.local_cluster import busyness, end_on_signals
from harness.node.installed import OUR_IMAGES, RELEASE, TEAM, Site, before_closeknit, is_ready
from harness.node.projects import NoNodes
from harness.toolchain import BuildError

PATIENCE_S = 90  # all of it is slower where others use the machine, too
READY_WITHIN_S, DECIDED_WITHIN_S, RUNNING_WITHIN_S = 5, 10, 60  # the project's own numbers
CHANGED = ("--set=operator.restartInPlace=false", "--set=agent.resources.requests.cpu=20m")
"""Values that an upgrade changes, so that every Pod of the chart is made again."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the table."""

    title: str
    seconds: float
    limit_s: float | None = None


@dataclass
class Walk:
    """The steps, in their order, on one site."""

    site: Site
    steps: list[Step] = field(default_factory=list)
    busy: float = 1.0
    """How busy the machine was when the installation began."""

    def install(self, version: int = 4) -> str:
        """What Helm says. A first job waits for the operator and is seen to run."""
        self.busy = busyness()
        began = time.monotonic()
        said = self.site.helm("install", RELEASE, str(CHART), *OUR_IMAGES, version=version)
        self._note("helm install returns", began)
        self.apply(job("first", "import time; time.sleep(2)"))
        made = self.until(lambda: self.site.pods("operator"), "Pods of the operator")
        seen = time.monotonic()
        self.until(lambda: any(map(is_ready, self.site.pods("operator"))), "an operator that is ready")
        self._note("the operator's Pod is ready, from when there is one", seen, READY_WITHIN_S)
        self.until(lambda: self.state("first"), "a first decision")
        self._note("it has decided on the first job, from when there is a Pod", seen, DECIDED_WITHIN_S)
        self.wait_for("first", "Running", "Succeeded")
        self._note("the first job runs, from helm install", began, RUNNING_WITHIN_S)
        assert made
        return said

    def finish_first_job(self) -> None:
        """Until it has succeeded, and all Pods of the chart are ready."""
        with self._step("the first job has succeeded"):
            self.wait_for("first", "Succeeded")
        with self._step("all four Pods are ready"):
            self.until(self.site.rolled_out, "all Pods of the chart to be ready")

    def why_not(self) -> str:
        """What kubectl shows of a job that is too large."""
        with self._step("why not: a job that is too large says so"):
            self.apply(job("too-large", "", gpus=64))
            self.until(lambda: self.job("too-large").get("pending"), "what it waits for")
            shown = self.site.cluster.kubectl("get", "trainingjobs", "--output=wide", f"--namespace={TEAM}")
        self.site.cluster.delete("trainingjob", "too-large", TEAM)
        return shown

    def test(self, version: int = 4) -> str:
        """What `helm test` shows."""
        with self._step("helm test"):
            return self.site.helm("test", RELEASE, "--logs", version=version)

    def start_long_job(self) -> None:
        """A job that runs until it is told to end."""
        with self._step("a long job runs"):
            self.apply(job("long", UNTIL_TOLD))
            self.wait_for("long", "Running")

    def upgrade(self) -> None:
        """Other values; every Pod of the chart is made again."""
        with self._step("helm upgrade, until all Pods are the new ones"):
            self.site.helm("upgrade", RELEASE, str(CHART), *OUR_IMAGES, *CHANGED)
            self.until(self.site.rolled_out, "the upgrade to be rolled out")

    def roll_back(self) -> None:
        """To the revision before."""
        with self._step("helm rollback, likewise"):
            self.site.helm("rollback", RELEASE)
            self.until(self.site.rolled_out, "the rollback to be rolled out")

    def uninstall(self, version: int = 4) -> str:
        """What Helm says. Returns once no Pod of the chart is left."""
        with self._step("helm uninstall, until no Pod of the chart is left"):
            said = self.site.helm("uninstall", RELEASE, version=version)
            self.until(lambda: not self.site.has_pods(), "no Pod")
        return said

    def end(self, name: str) -> None:
        """Tells the ranks of a job that runs until it is told, and waits until the operator has seen their end."""
        with self._step(f"the job {name}, told to end, has succeeded"):
            for pod in self.pods(name):
                if pod["status"]["phase"] != "Running":
                    continue
                told = ("exec", pod["metadata"]["name"], f"--namespace={TEAM}", "--", "python", "-c", TELL)
                self.site.cluster.kubectl(*told, check=False)  # its container may end before the telling does
            self.wait_for(name, "Succeeded")

    def apply(self, manifest: dict[str, Any]) -> None:
        """As `kubectl apply`. A policy or CRD that was made a moment ago may not be served yet."""
        self.site.cluster.apply(manifest)

    def job(self, name: str) -> dict[str, Any]:
        """The job's status; empty while the operator has said nothing."""
        found: dict[str, Any] = self.site.cluster.get("trainingjob", name, TEAM).get("status", {})
        return found

    def state(self, name: str) -> str:
        """Its state, or nothing."""
        return str(self.job(name).get("state", ""))

    def pods(self, name: str) -> Sequence[dict[str, Any]]:
        """Its Pods, by name."""
        found = self.site.cluster.get("pods", namespace=TEAM)["items"]
        ours = [each for each in found if each["metadata"].get("labels", {}).get("closeknit.dev/job") == name]
        return sorted(ours, key=lambda each: str(each["metadata"]["name"]))

    def wait_for(self, name: str, *states: str) -> None:
        """Until the job is in one of these states."""
        self.until(lambda: self.state(name) in states, f"{name} to be {' or '.join(states)}")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Its first answer that says something. Raises TimeoutError, with all Pods as they are then."""
        try:
            return self.site.cluster.wait_for(condition, what, PATIENCE_S)
        except TimeoutError as error:
            error.add_note(self.site.cluster.kubectl("get", "pods", "--all-namespaces", "--output=wide"))
            raise

    def late(self) -> list[str]:
        """The steps that took longer than they may; so much longer on a busy machine as it is busy."""
        return [
            step.title for step in self.steps if step.limit_s is not None and step.seconds > step.limit_s * self.busy
        ]

    def table(self) -> str:
        """All steps so far."""
        limits = [f"at most {each.limit_s:g}" if each.limit_s else "" for each in self.steps]
        lines = [f"{each.seconds:8.1f}  {limit:12}{each.title}" for each, limit in zip(self.steps, limits, strict=True)]
        return "\n".join([" seconds  limit       step", *lines])

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._note(title, began)

    def _note(self, title: str, began: float, limit_s: float | None = None) -> None:
        self.steps.append(Step(title, time.monotonic() - began, limit_s))


_FLAG = "/tmp/over"  # noqa: S108 - in a container
UNTIL_TOLD = f"import os, time\nwhile not os.path.exists('{_FLAG}'): time.sleep(0.1)"
TELL = f"open('{_FLAG}', 'w')"


def job(name: str, program: str, *, gpus: int = 4) -> dict[str, Any]:
    """Two GPUs of each node for a program of Python's; it runs from the agent's image, which every node has."""
    trainer = {"name": "trainer", "image": AGENT.name, "imagePullPolicy": "Never", "command": ["python", "-c", program]}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [trainer]}}
    metadata = {"name": name, "namespace": TEAM}
    spec = {"gpus": gpus, "topology": {"gpusPerNode": 2}, "template": template}
    return {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob", "metadata": metadata, "spec": spec}


def main() -> int:
    """Takes the walk, and prints the table."""
    end_on_signals()
    try:
        with before_closeknit() as site:
            walk = Walk(site)
            walk.install()
            walk.finish_first_job()
            print(walk.why_not())
            print(walk.test())
            walk.start_long_job()
            walk.upgrade()
            walk.roll_back()
            print(walk.uninstall())
            print(site.cluster.kubectl("get", "trainingjobs,pods", f"--namespace={TEAM}"))
            print(walk.table())
    except (BuildError, HelmError, NoImages, NoNodes, TimeoutError) as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
