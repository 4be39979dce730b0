"""What `closeknit-agent` says to bad input: one line, exit code 2, and nothing written."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from closeknit.agent.discovery.readings.dump import decode
from closeknit.agent.main import app

DUMP = Path(__file__).parents[3] / "fixtures" / "dumps" / "hgx-h200-8gpu-vm.json"


has_driver = any(Path("/proc/driver/nvidia").glob("version"))


@pytest.mark.skipif(has_driver, reason="there is a driver here")
def test_a_dump_of_a_machine_without_a_driver_holds_what_there_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "closeknit.agent.main", "dump", "--root", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert decode(ended.stdout.encode()).errors["driver"] == "LibraryNotFound"
    assert ended.stderr == (
        "closeknit-agent: no GPU could be read: libnvidia-ml.so.1 is not installed, or the container runtime did not "
        "put it into this container; install the driver, and give the agent NVIDIA's runtime class or a DRA claim.\n"
    )


CUT = DUMP.read_text()[:1000]
FLEET = "nodes: [{name: a, kubeconfig: k, profile: dgx2}"


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        pytest.param(["--source", "recorded"], "", "--source recorded needs --dump FILE", id="no dump"),
        pytest.param(["--source", "simulated"], "", "--source simulated needs --profile NAME", id="no profile"),
        pytest.param(
            ["--source", "simulated", "--profile", "dgx2", "--faults", "{deadGPU: [1]}"],
            "",
            "--faults: Object contains unknown field `deadGPU`",
            id="a misspelt fault",
        ),
        pytest.param(
            ["--source", "simulated", "--profile", "dgx2", "--faults", "{lostSwitches: [12]}"],
            "",
            "node node-1: fault lostSwitches names switch 12; the machine has 12",
            id="a switch that the machine does not have",
        ),
        pytest.param(
            ["--source", "recorded", "--dump", "input"],
            CUT,
            "cannot read the dump input: Input data was truncated",
            id="a dump cut in half",
        ),
        pytest.param(
            ["--source", "recorded", "--dump", "input"],
            '{"format": 2, "readings": {}}',
            "cannot read the dump input: its format is 2; this version reads format 1",
            id="a dump of another format",
        ),
        pytest.param(
            ["--source", "recorded", "--dump", "input"],
            '{"format": 1, "readings": {"gpus": [{"index": "0"}]}}',
            "cannot read the dump input: Expected `int`, got `str` - at `$.readings.gpus[0].index`",
            id="a dump with a wrong value",
        ),
        pytest.param(
            ["--simulate", "input"],
            FLEET + ", {name: a, kubeconfig: k, profile: dgx2}]",
            "cannot read the fleet input: node a is there twice",
            id="a fleet with a node twice",
        ),
        pytest.param(
            ["--simulate", "input"],
            "nodes: [{name: a, kubeconfig: k}]",
            "cannot read the fleet input: node a needs either a profile, with faults if wanted, or a dump",
            id="a fleet's node without a machine",
        ),
        pytest.param(
            ["--simulate", "input"],
            "nodes: [{name: a, kubeconfig: k, profil: dgx2}]",
            "cannot read the fleet input: Object contains unknown field `profil` - at `$.nodes[0]`",
            id="a fleet with a misspelt field",
        ),
        pytest.param(
            ["--simulate", "input"],
            "nodes: [{name: a, kubeconfig: k, profile: dgx2, faults: {deadGPUs: [16]}}]",
            "node a: fault deadGPUs names GPU 16; the machine has GPUs 0 to 15",
            id="a fault that the machine cannot have",
        ),
        pytest.param(
            ["--simulate", "input", "--metrics-address", ":8080"],
            FLEET.replace("kubeconfig: k", "kubeconfig: input") + "]",
            "--metrics-address serves the GPUs of one node, and --simulate plays many",
            id="live values of a fleet",
        ),
        pytest.param(
            ["--source", "recorded", "--dump", str(DUMP), "--kubeconfig", "input", "--metrics-address", "8080"],
            "",
            "'8080' is not an address such as 127.0.0.1:8080 or :8080",
            id="an address without a colon",
        ),
        pytest.param(
            ["--source", "recorded", "--dump", str(DUMP), "--kubeconfig", "nowhere"],
            "",
            "node node-1: there is no kubeconfig nowhere",
            id="no kubeconfig",
        ),
    ],
)
def test_bad_input(options: list[str], text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("input").write_text(text)
    ended = CliRunner().invoke(app, ["--node", "node-1", *options])
    assert (ended.stderr, ended.stdout, ended.exit_code) == (f"closeknit-agent: {said}\n", "", 2)


def test_without_a_node_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    ended = CliRunner().invoke(app, ["--source", "recorded", "--dump", str(DUMP)])
    assert ended.stderr == "closeknit-agent: which Node is this? Give --node NAME, or set NODE_NAME\n"
    assert ended.exit_code == 2


def test_an_agent_at_rest_has_no_general_client_of_http_in_memory() -> None:
    """12 MB of its 80; a proxy or a watch brings it."""
    modules = (
        "agent.main agent.node_agent agent.sources.hardware agent.publish agent.metrics agent.kubelet.pod_resources "
        "kube.http.http_api kube.login.pod_login runtime.web runtime.access"
    )
    imports = "".join(f"import closeknit.{module}\n" for module in modules.split())
    program = f"{imports}import sys\nprint({{'aiohttp', 'kubernetes', 'ryaml'}} & sys.modules.keys())"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert said.stdout.strip() == "set()"
