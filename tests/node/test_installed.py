"""closeknit as an administrator has it: by Helm, on two real kubelets, from our images, in a restricted namespace.

Only NVIDIA's driver and DRA driver are stand-ins (harness.node.stand_in_driver, harness/go-node/gpus). The chart's
NetworkPolicies are enforced all the while (harness.node.policies), so that probes, `helm test`, the map and the
operator's own requests are seen to pass them. `make walk` takes the same steps and prints how long each took.
"""

import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from harness.api_writer import Login
from harness.chart import CHART, NAMESPACE, OPERATOR_USER
from harness.images import OPERATOR, NoImages
from harness.local_cluster import LocalCluster
from harness.node.installed import OUR_IMAGES, RELEASE, TEAM, Site, before_closeknit
from harness.node.site import API_ADDRESS
from harness.node.walk import Walk
from harness.privileges import audit, written

pytestmark = pytest.mark.nodes

FIRST = Path(__file__).parents[1] / "fixtures" / "first-chart"
CRDS = [f"{plural}.closeknit.dev" for plural in ("clustertopologies", "nodetopologies", "trainingjobs")]


@pytest.fixture(scope="module")
def site(node_machine: None, pytestconfig: pytest.Config) -> Iterator[Site]:  # noqa: ARG001 - it skips
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with ExitStack() as stack:
        try:
            with capture.global_and_fixture_disabled():  # first builds take minutes: show their progress
                site = stack.enter_context(before_closeknit())
        except NoImages as reason:
            pytest.skip(f"no images here: {reason}")
        yield site


@pytest.fixture(scope="module")
def walk(site: Site) -> Iterator[Walk]:
    """With the chart installed, and a first job that has succeeded. A test that uninstalls it installs it again."""
    walk = Walk(site)
    walk.install()
    walk.finish_first_job()
    yield walk
    print(walk.table())


@pytest.fixture
def installed(walk: Walk) -> Walk:
    """The walk, where a first try of the test may have ended with the chart uninstalled, or with a long job."""
    site = walk.site
    if RELEASE not in site.helm("list", "--short").split():
        site.helm("install", RELEASE, str(CHART), *OUR_IMAGES)
    site.cluster.kubectl("delete", "trainingjob", "long", f"--namespace={TEAM}", "--ignore-not-found")
    walk.until(lambda: site.rolled_out() and not walk.pods("long"), "the chart alone to be there")
    return walk


def test_nothing_of_ours_is_there_before(site: Site) -> None:
    assert _left(site) == []


@pytest.mark.alone
def test_the_first_job_runs_soon(walk: Walk, record_property: Callable[[str, object], None]) -> None:
    if walk.late():  # a busy machine has a second chance
        walk.uninstall()
        walk.site.cluster.kubectl("delete", "trainingjob", "first", f"--namespace={TEAM}")
        walk.steps.clear()
        walk.install()
        walk.finish_first_job()
    record_property("measured", "; ".join(f"{step.title}: {step.seconds:.1f} s" for step in walk.steps))
    assert walk.late() == []


def test_operators_and_agents_are_where_they_should_be(walk: Walk) -> None:
    """The namespace enforces Pod Security's level restricted, so that each Pod there is what that allows."""
    nodes = {node.site.name for node in walk.site.nodes}
    assert {pod["spec"]["nodeName"] for pod in walk.site.pods("operator")} == nodes
    assert {pod["spec"]["nodeName"] for pod in walk.site.pods("agent")} == nodes
    restarts = [each["restartCount"] for pod in _all_pods(walk) for each in pod["status"]["containerStatuses"]]
    assert restarts == [0] * 4
    assert walk.site.leader() in {pod["metadata"]["name"] for pod in walk.site.pods("operator")}
    policies = walk.site.cluster.get("networkpolicies", namespace=NAMESPACE)["items"]
    assert {each["metadata"]["name"] for each in policies} == {"closeknit-operator", "closeknit-agent"}


def test_the_agents_read_the_driver(walk: Walk) -> None:
    """By the library that the RuntimeClass `nvidia` puts into their Pods, and with the chart's own arguments."""
    found = walk.site.cluster.get("nodetopologies")["items"]
    assert {each["metadata"]["name"] for each in found} == {node.site.name for node in walk.site.nodes}
    assert {each["spec"]["source"]["method"] for each in found} == {"NVML"}
    assert {len(each["spec"]["gpus"]) for each in found} == {8}


def test_the_first_job_had_the_planned_gpus(walk: Walk) -> None:
    conditions = {each["type"]: each["status"] for each in walk.job("first")["conditions"]}
    assert conditions["PlacementVerified"] == conditions["Succeeded"] == "True"
    assert {share["actual"] for share in walk.job("first")["placement"]["nodes"]} == {"Verified"}


def test_a_job_that_is_too_large_says_why(walk: Walk) -> None:
    assert "needs 32 nodes with 2 free GPUs each; 2 have so many" in walk.why_not()


def test_the_charts_own_test_passes(walk: Walk) -> None:
    """By both Helms."""
    for version in (4, 3):
        assert re.findall(r"^(ok|NOT OK) +", walk.test(version), re.MULTILINE) == ["ok"] * 4


def test_the_map_opens_in_an_operators_pod(walk: Walk, tmp_path: Path) -> None:
    """By `closeknit map` as docs/map.md has it: through API server and kubelet, in the operator's own TLS, and on in
    the other Pod once that one is gone."""
    site = walk.site
    token = _reader_of_the_map(site)
    told = tmp_path / "told"
    command = [str(Path(sys.executable).parent / "closeknit"), "map", "--no-browser", "--port=0"]
    with told.open("wb") as out:
        process = subprocess.Popen([*command, f"--kubeconfig={site.cluster.kubeconfig}"], stdout=out, stderr=out)
    try:

        def listens() -> bool:
            assert process.poll() is None, told.read_text()
            return "/map/" in told.read_text()

        site.cluster.wait_for(listens, "closeknit map to listen", 30)
        url = told.read_text().split()[0]
        assert "<title>" in _of_map(url, None)
        with pytest.raises(HTTPError, match="401"):
            _of_map(f"{url}stream", None)
        assert "node-1" in _of_map(f"{url}stream", token)
        for pod in site.pods("operator"):  # also that one to which it leads
            site.cluster.kubectl("delete", "pod", pod["metadata"]["name"], f"--namespace={NAMESPACE}")
            site.cluster.wait_for(site.rolled_out, "two operators again", 60)

        def opens() -> bool:
            with suppress(OSError):  # the first request learns that the Pod is gone
                return "<title>" in _of_map(url, None)
            return False

        site.cluster.wait_for(opens, "the map of another Pod", 60)
        assert "node-1" in _of_map(f"{url}stream", token)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert "Traceback" not in told.read_text()
    finally:
        process.kill()
        process.wait()


def _reader_of_the_map(site: Site) -> str:
    """The token of the account that docs/map.md makes, by its very commands."""
    page = (Path(__file__).parents[2] / "docs/map.md").read_text()
    lines = [line.split()[1:] for line in page.splitlines() if line.startswith("kubectl create ")]
    assert [line[1] for line in lines] == ["serviceaccount", "clusterrolebinding", "clusterrolebinding", "token"]
    for kind, name, *where in (line[1:] for line in lines[:3]):  # of a first try
        site.cluster.kubectl("delete", kind, name, *where[:2][: 2 * (kind == "serviceaccount")], "--ignore-not-found")
    return [site.cluster.kubectl(*line) for line in lines][-1].strip()


def _of_map(url: str, token: str | None) -> str:
    """What is there; of the stream, the beginning. Raises OSError."""
    trusted = ssl.create_default_context()
    trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE  # the operator made its certificate itself
    headers = {"Closeknit-Map": "1", **({} if token is None else {"Authorization": f"Bearer {token}"})}
    asked = Request(url, headers=headers)  # noqa: S310 - what the command has printed
    with urlopen(asked, timeout=15, context=trusted) as answer:  # noqa: S310 - so
        if not url.endswith("stream"):
            return str(answer.read().decode())
        begun = b""
        while b"node-1" not in begun and len(begun) < 1 << 20:
            begun += answer.read1(1 << 16)
        return begun.decode()


def test_only_the_namespace_of_the_metrics_is_let_in(walk: Walk) -> None:
    """By the chart's NetworkPolicies. The two readers differ in their namespace alone, both may read the metrics, and
    both reach the API server; each asks Pods of its own node and of the other."""
    if walk.site.unguarded:
        pytest.skip(f"no NetworkPolicy is enforced here: {walk.site.unguarded}")
    cluster = walk.site.cluster
    readers = ("monitoring", "elsewhere")
    for namespace in readers:
        _begin_reader(cluster, namespace)
    pods = {str(pod["status"]["podIP"]): pod for pod in _all_pods(walk)}
    paths = {address: ["metrics"] for address in pods}
    for pod in walk.site.pods("operator"):
        paths[str(pod["status"]["podIP"])].append("map/")
    urls = [f"https://{address}:8080/{path}" for address, each in paths.items() for path in each]
    assert len(urls) == 6
    for namespace in readers:
        cluster.kubectl("wait", "--for=condition=Ready", "pod/reader", f"--namespace={namespace}", "--timeout=60s")
    told = {}

    def heeded() -> bool:
        """The rules for a Pod come a moment after it."""
        told.update({namespace: _answers(cluster, namespace, *urls, API_SERVER) for namespace in readers})
        return all(told["monitoring"].values()) and not any(told["elsewhere"][url] for url in urls)

    with suppress(TimeoutError):
        cluster.wait_for(heeded, "the NetworkPolicies to be heeded", 30)
    assert told["monitoring"] == dict.fromkeys([*urls, API_SERVER], 200)
    assert told["elsewhere"] == {**dict.fromkeys(urls, 0), API_SERVER: 200}


API_SERVER = f"https://{API_ADDRESS}/version"
ASK = """
import concurrent.futures, json, ssl, sys, urllib.error, urllib.request
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
def ask(url):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
    try:
        return urllib.request.urlopen(request, timeout=3, context=ssl._create_unverified_context()).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
with concurrent.futures.ThreadPoolExecutor() as pool:
    print(json.dumps(dict(zip(sys.argv[1:], pool.map(ask, sys.argv[1:])))))
"""
"""What a reader runs: the status that each URL answers with, 0 where none comes."""


def _begin_reader(cluster: LocalCluster, namespace: str) -> None:
    """A namespace with a Pod on the first node whose account may read the metrics."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    cluster.wait_for_default_account(namespace)
    account = f"--serviceaccount={namespace}:default"
    for role in ("metrics-reader", "map-viewer"):
        name = f"{role}-{namespace}"
        cluster.kubectl("delete", "clusterrolebinding", name, "--ignore-not-found")  # of a first try
        cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole=closeknit-{role}", account)
    sleep = ["python", "-c", "import signal; signal.pause()"]
    container = {"name": "reader", "image": OPERATOR.name, "imagePullPolicy": "Never", "command": sleep}
    spec = {"nodeName": "node-1", "terminationGracePeriodSeconds": 0, "containers": [container]}
    metadata = {"name": "reader", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _answers(cluster: LocalCluster, namespace: str, *urls: str) -> dict[str, int]:
    command = ("exec", "reader", f"--namespace={namespace}", "--", "python", "-c", ASK, *urls)
    answers: dict[str, int] = json.loads(cluster.kubectl(*command))
    return answers


def test_the_same_once_more_changes_nothing(walk: Walk) -> None:
    """What `helm diff` would show, and what Argo CD and Flux go by: nothing random, and no object written again."""
    site = walk.site
    before = site.helm("get", "manifest", RELEASE), _versions(site)
    site.helm("upgrade", RELEASE, str(CHART), *OUR_IMAGES)
    assert (site.helm("get", "manifest", RELEASE), _versions(site)) == before


def test_an_eviction_takes_one_operator_at_a_time(installed: Walk) -> None:
    site, leader = installed.site, installed.site.leader()
    (other,) = {pod["metadata"]["name"] for pod in site.pods("operator")} - {leader}
    assert _evict(site, leader) == ""
    assert "disruption budget" in _evict(site, other)
    site.cluster.wait_for(lambda: site.leader() == other, "the other to lead", 30)
    site.cluster.wait_for(site.rolled_out, "two operators again", 60)


def test_a_token_of_an_agents_pod_writes_about_its_own_node_alone(walk: Walk) -> None:
    site = walk.site
    pod = next(each for each in site.pods("agent") if each["spec"]["nodeName"] == "node-1")
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - where it is
    read = ("exec", pod["metadata"]["name"], f"--namespace={NAMESPACE}", "--", "python", "-c")
    login = Login(token=site.cluster.kubectl(*read, f"print(open('{token}').read(), end='')"))
    patch = {"metadata": {"labels": {"closeknit.dev/health": "healthy"}}}
    answers = {
        node: site.cluster.writer.patch("node", node, patch, login=login, dry_run=True) for node in ("node-1", "node-2")
    }
    assert answers["node-1"].refusal == ""
    assert "ValidatingAdmissionPolicy 'closeknit-agent" in answers["node-2"].refusal


def test_each_identity_may_do_what_the_page_says(walk: Walk) -> None:
    """docs/security.md, as Helm has installed the chart: all verbs of all resources, and what policies refuse."""
    assert audit(walk.site.cluster) == written()


def test_a_running_job_outlives_upgrade_rollback_and_uninstall(installed: Walk) -> None:
    walk = installed
    walk.start_long_job()
    before = _incarnations(walk)
    walk.upgrade()
    walk.roll_back()
    said = walk.uninstall()
    assert all(f"[CustomResourceDefinition] {name}" in said for name in CRDS)
    assert _left(walk.site) == [f"CustomResourceDefinition {name}" for name in CRDS]
    assert _incarnations(walk) == before
    # And by the other Helm: it takes over what the first has left, jobs and CRDs.
    walk.site.helm("install", RELEASE, str(CHART), *OUR_IMAGES, version=3)
    walk.end("long")
    assert walk.job("long")["restarts"] == 0
    assert _incarnations(walk) == before


def test_the_first_chart_is_upgraded_under_a_running_job(installed: Walk) -> None:
    """That of the project's first issue, by Helm 3. Its operator has left a job that runs: tests/fixtures/first-chart
    says how that was recorded. No image of that time exists, so that its Pods do not start; ours then take over."""
    walk, site = installed, installed.site
    walk.uninstall(version=3)
    site.cluster.kubectl("delete", "crd", *CRDS)
    values = [value.replace("image.tag=test", "image.tag=never-built") for value in OUR_IMAGES]
    site.helm("install", RELEASE, str(FIRST / "closeknit-0.1.0.tgz"), *values, version=3)
    _restore(site, FIRST / "running-job.yaml")
    pods = walk.until(lambda: _running(walk, "first"), "the recorded Pods to run")
    site.helm("upgrade", RELEASE, str(CHART), *OUR_IMAGES)
    walk.until(site.rolled_out, "the upgrade to be rolled out")
    assert _running(walk, "first") == pods
    walk.end("first")
    assert walk.job("first")["restarts"] == 0


def _all_pods(walk: Walk) -> list[dict[str, Any]]:
    return [*walk.site.pods("operator"), *walk.site.pods("agent")]


def _incarnations(walk: Walk) -> list[str]:
    return [str(pod["metadata"]["uid"]) for pod in walk.pods("long")]


def _running(walk: Walk, name: str) -> list[str] | None:
    """The uids of its two Pods once both run."""
    pods = walk.pods(name)
    run = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    return [str(pod["metadata"]["uid"]) for pod in run] if len(run) == len(pods) == 2 else None


def _versions(site: Site) -> Mapping[str, str]:
    """resourceVersion of each object of the release; the generation where it has one, for its status changes, too."""
    text = site.cluster.kubectl("get", "--filename=-", "--output=json", stdin=site.helm("get", "manifest", RELEASE))
    return {
        f"{each['kind']} {each['metadata']['name']}": str(
            each["metadata"].get("generation") or each["metadata"]["resourceVersion"]
        )
        for each in json.loads(text)["items"]
    }


def _evict(site: Site, pod: str) -> str:
    """Why not; empty where it is done."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    return site.cluster.writer.send("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", body).refusal


def _left(site: Site) -> list[str]:
    """What of the chart is in the cluster, of every kind that it has."""
    text = site.helm("template", RELEASE, str(CHART), *OUR_IMAGES)
    kinds = {(each["apiVersion"], each["kind"]) for each in yaml.safe_load_all(text) if each}
    found = []
    for version, kind in sorted(kinds):
        group = version.partition("/")[0] if "/" in version else ""
        found += [
            f"{kind} {each['metadata']['name']}"
            for each in site.cluster.get(f"{kind}.{group}".lower() if group else kind.lower())["items"]
            if each["metadata"].get("annotations", {}).get("meta.helm.sh/release-name") == RELEASE
        ]
    return sorted(found)


def _restore(site: Site, file: Path) -> None:
    """Makes recorded objects again, as the operator: owners first, and each child names its owner's new uid."""
    uids: dict[str, str] = {}
    for body in yaml.safe_load_all(file.read_text()):
        for owner in body["metadata"].get("ownerReferences", ()):
            owner["uid"] = uids[owner["uid"]]
        is_job = body["kind"] == "TrainingJob"
        made = site.cluster.writer.create(body, login=Login() if is_job else Login(OPERATOR_USER), strict=False)
        assert made.refusal == "", made.refusal
        uids[f"of {body['kind']} {body['metadata']['name']}"] = made.body["metadata"]["uid"]
        if is_job:
            site.cluster.patch("trainingjob", body["metadata"]["name"], {"status": body["status"]}, TEAM, "status")
