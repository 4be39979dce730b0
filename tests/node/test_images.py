"""The images of operator and agent, built from their Dockerfiles, in containerd alone and as restricted as Pods are."""

import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.chart import NAMESPACE
from harness.images import AGENT, IMAGES, OPERATOR, BuiltLayer, Image, NoImages, image_archive, layers, manifest_digest
from harness.install import OPERATOR as OPERATOR_ACCOUNT
from harness.install import free_port, install, is_ready
from harness.local_cluster import LocalCluster
from harness.machines import AGENT_SERVICE_ACCOUNT, agent_pod, agent_pod_name, node_object
from harness.node.lone_containerd import LoneContainerd

pytestmark = pytest.mark.nodes

ANY_USER = "4711:4711"
KUBECONFIG = "/etc/kubeconfig"


@pytest.fixture(scope="module")
def archives(node_machine: None, pytestconfig: pytest.Config) -> dict[Image, Path]:  # noqa: ARG001 - it skips
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():  # a first build takes a minute: show its progress
        try:
            return {image: image_archive(image) for image in IMAGES}
        except NoImages as reason:
            pytest.skip(f"no images here: {reason}")


@pytest.fixture(scope="module")
def built(archives: dict[Image, Path]) -> dict[Image, list[BuiltLayer]]:
    return {image: layers(archive) for image, archive in archives.items()}


@pytest.fixture(scope="module")
def containerd(archives: dict[Image, Path]) -> Iterator[LoneContainerd]:
    with LoneContainerd() as containerd:
        for archive in archives.values():
            containerd.import_image(archive)
        yield containerd


@pytest.fixture(scope="module")
def cluster(containerd: LoneContainerd) -> Iterator[LocalCluster]:  # noqa: ARG001 - skipped where that is
    with LocalCluster() as cluster:
        install(cluster)
        yield cluster


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.program)
def test_what_is_ours_is_small(
    built: dict[Image, list[BuiltLayer]], image: Image, record_property: Callable[[str, object], None]
) -> None:
    _, library, packages, own = built[image]
    sizes_mb = [layer.unpacked_bytes / 1e6 for layer in (library, packages, own)]
    record_property("measured", f"{image.program}: {' + '.join(f'{size:.1f}' for size in sizes_mb)} MB beyond the base")
    assert sum(sizes_mb) <= 120  # the limit of the project's numbers
    assert sizes_mb[-1] < 10  # what a new version brings


def test_both_images_share_what_is_not_their_own(built: dict[Image, list[BuiltLayer]]) -> None:
    operator, agent = (built[image] for image in IMAGES)
    assert [layer.digest for layer in operator[:2]] == [layer.digest for layer in agent[:2]]


@pytest.mark.long
def test_the_same_sources_make_the_same_image(
    archives: dict[Image, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where no layer is kept
    again = image_archive(AGENT)
    assert again != archives[AGENT]
    assert manifest_digest(again) == manifest_digest(archives[AGENT])


@pytest.mark.parametrize(
    ("image", "program"), [(OPERATOR, "closeknit-operator"), (AGENT, "closeknit-agent")], ids=["operator", "agent"]
)
def test_its_program_helps_without_a_shell(containerd: LoneContainerd, image: Image, program: str) -> None:
    # ctr gives an image's own entrypoint no arguments, so that it is named here as the chart names it.
    ended = containerd.run(image.name, program, "--help", mounts={"/bin/sh": Path("/dev/null")})
    assert ended.code == 0, ended.output
    assert program in ended.output


def test_it_has_the_version_that_its_label_says(containerd: LoneContainerd) -> None:
    version = re.search(r'image.version="(.*)"', OPERATOR.dockerfile.read_text())
    assert version is not None
    assert (
        f"closeknit-operator {version[1]}\n" in containerd.run(OPERATOR.name, "closeknit-operator", "--version").output
    )


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.program)
def test_a_container_can_change_nothing(containerd: LoneContainerd, image: Image) -> None:
    look = """
import os
for path in ("/x", "/opt/closeknit/x", "/etc/passwd", "/tmp/x"):
    try:
        open(path, "a").close(); print("wrote", path)
    except OSError as error:
        print("kept", path)
print("user", os.getuid(), os.getgid())
print("\\n".join(line for line in open("/proc/self/status") if line.startswith(("Cap", "NoNewPrivs"))))
"""
    said = containerd.run(image.name, "python", "-c", look).output
    assert re.findall(r"wrote (\S+)", said) == ["/tmp/x"]  # noqa: S108 - in the container
    assert re.findall(r"kept (\S+)", said) == ["/x", "/opt/closeknit/x", "/etc/passwd"]
    assert "user 1000 1000" in said
    assert set(re.findall(r"Cap(?:Prm|Eff|Bnd|Amb):\t(\S+)", said)) == {"0" * 16}
    assert "NoNewPrivs:\t1" in said


def test_the_client_that_is_cut_down_still_logs_in(containerd: LoneContainerd) -> None:
    look = """
import importlib, pkgutil
import kopf, kubernetes.aio.config, kubernetes.config
for package in (kubernetes.aio.config, kubernetes.config):
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
from kubernetes.aio.client.rest import RESTClientObject
print("imported", kopf.login_with_kubeconfig.__name__)
"""
    assert "imported login_with_kubeconfig" in containerd.run(OPERATOR.name, "python", "-c", look).output


@pytest.mark.parametrize(
    ("image", "modules"),
    [(OPERATOR, "closeknit.controller.main"), (AGENT, "closeknit.agent.main, closeknit.agent.node_agent")],
    ids=["operator", "agent"],
)
def test_a_start_compiles_nothing(containerd: LoneContainerd, image: Image, modules: str) -> None:
    look = f"""
import sys
import {modules}
import os
specs = [module.__spec__ for module in list(sys.modules.values()) if getattr(module, "__spec__", None)]
print("compiled", sorted(spec.name for spec in specs if spec.cached and not os.path.exists(spec.cached)))
print("found", sum(bool(spec.cached) for spec in specs))
"""
    said = containerd.run(image.name, "python", "-c", look).output
    assert "compiled []" in said
    assert int(re.findall(r"found (\d+)", said)[0]) > 200


def test_any_user_runs_the_sidecar_in_any_folder(containerd: LoneContainerd, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the working folder')")
    tmp_path.chmod(0o755)
    program = "import closeknit.sidecar.ras, closeknit.sidecar.hang, os; print('user', os.getuid())"
    with containerd.started(
        AGENT.name, "python", "-c", program, user=ANY_USER, mounts={"/work": tmp_path}, flags=["--cwd=/work"]
    ) as container:
        ended = container.end()
    assert ended.code == 0
    assert "user 4711" in ended.output


@pytest.mark.parametrize(("image", "start"), [(OPERATOR, "operator"), (AGENT, "agent")], ids=["operator", "agent"])
def test_one_that_still_imports_ends_at_once(containerd: LoneContainerd, image: Image, start: str) -> None:
    # It is the first process of the container: a signal that it does not handle is dropped, and not its end.
    program = f"""
import os, signal, time
import closeknit.start
closeknit.start._run = lambda *_: (os.kill(1, signal.SIGTERM), time.sleep(5))
closeknit.start.{start}()
"""
    assert containerd.run(image.name, "python", "-c", program).code == 0


def cpu_seconds(port: int) -> float:
    """The CPU time of the operator that serves its metrics here."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return next(each.samples[0].value for each in families if each.name == "process_cpu_seconds")


@pytest.mark.alone
@pytest.mark.parametrize("user", ["", ANY_USER], ids=["its own user", "any user"])
def test_an_operator_is_ready_soon_and_ends_at_once(
    containerd: LoneContainerd, cluster: LocalCluster, record_property: Callable[[str, object], None], user: str
) -> None:
    """Neither user has a name in the image. How soon is told, and what is bounded is the CPU time that it takes: others
    may have the cores of this machine."""
    port = free_port()
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, OPERATOR_ACCOUNT)
    kubeconfig.chmod(0o644)  # root's, in a folder of root's
    command = ["closeknit-operator", f"--kubeconfig={KUBECONFIG}", f"--metrics-address=127.0.0.1:{port}"]
    began = time.monotonic()
    with containerd.started(
        OPERATOR.name, *command, user=user, mounts={KUBECONFIG: kubeconfig}, flags=["--net-host"]
    ) as container:
        cluster.wait_for(lambda: is_ready(port), "the operator to be ready")
        ready_s, cpu_s = time.monotonic() - began, cpu_seconds(port)
        container.signal(signal.SIGTERM)
        began = time.monotonic()
        ended = container.end()
        end_s = time.monotonic() - began
    record_property("measured", f"ready after {ready_s:.1f} s, {cpu_s:.1f} of CPU; over {end_s:.2f} s after SIGTERM")
    assert ended.code == 0, ended.output
    assert cpu_s <= 5
    assert end_s <= 1


@pytest.mark.alone
def test_an_agent_publishes_a_simulated_machine_and_ends_at_once(
    containerd: LoneContainerd, cluster: LocalCluster, record_property: Callable[[str, object], None]
) -> None:
    cluster.delete("nodetopologies")  # of a first try
    cluster.apply(node_object("gpu-1", "hgx-h200", plugin=True), agent_pod("gpu-1"))
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, AGENT_SERVICE_ACCOUNT, pod=agent_pod_name("gpu-1"))
    kubeconfig.chmod(0o644)
    command = [
        "closeknit-agent",
        "--source=simulated",
        "--profile=hgx-h200",
        "--node=gpu-1",
        f"--kubeconfig={KUBECONFIG}",
    ]
    began = time.monotonic()
    login = {KUBECONFIG: kubeconfig}
    with containerd.started(AGENT.name, *command, mounts=login, flags=["--net-host"]) as container:
        found = cluster.wait_for(lambda: cluster.get("nodetopologies")["items"], "the agent's NodeTopology")
        published_s = time.monotonic() - began
        container.signal(signal.SIGTERM)
        began = time.monotonic()
        ended = container.end()
        end_s = time.monotonic() - began
    record_property("measured", f"published {published_s:.1f} s after its start, over {end_s:.2f} s after SIGTERM")
    assert [each["metadata"]["name"] for each in found] == ["gpu-1"]
    assert ended.code == 0, ended.output
    assert end_s <= 1
