"""How the command starts: at once, quietly where somebody interrupts it, and with a word where an extra is missing."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from closeknit.cli.main import _ORDER, app

EXAMPLES = Path(__file__).parents[3] / "examples"
PLAN = ["plan", "-f", "tensor-4.yaml", "--cluster", "cluster.yaml", "-o", "json"]

# A provider is to be asked who we are, which is the library's work.
KUBECONFIG = """
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {auth-provider: {name: oidc, config: {}}}}]
"""

# What an installation starts, with a finder that is called for every import, and a list of them all at the end.
PROGRAM = """
import atexit, json, os, signal, sys
names = set(sys.modules)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {interrupted!r}:
            os.kill(os.getpid(), signal.SIGINT)
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Finder())
if {is_counted}:
    atexit.register(lambda: print(json.dumps(sorted(set(sys.modules) - names)), file=sys.stderr))
from closeknit import start
start.{program}()
"""


def started(
    *arguments: str,
    program: str = "command",
    interrupted: str = "",
    missing: tuple[str, ...] = (),
    is_counted: bool = False,
) -> subprocess.CompletedProcess[str]:
    text = PROGRAM.format(program=program, interrupted=interrupted, missing=missing, is_counted=is_counted)
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, cwd=EXAMPLES, input=KUBECONFIG, capture_output=True, text=True, check=False)


def modules(*arguments: str) -> set[str]:
    ended = started(*arguments, is_counted=True)
    assert ended.returncode == 0
    return set(json.loads(ended.stderr))


@pytest.mark.parametrize(("arguments", "most"), [(["--help"], 125), (["plan", "-h"], 245)], ids=["help", "plan -h"])
def test_help_waits_for_nothing_but_typer(arguments: list[str], most: int) -> None:
    """0.13 s of a core where all modules took 0.8. Modules are counted, for a second is another one elsewhere: 104 of
    them today; of a single command 218, for typer reads options by pydantic where that is installed."""
    found = modules(*arguments)
    assert found & {"msgspec", "rich", "ryaml", "yaml", "asyncio", "immutables", "closeknit.cluster"} == set()
    assert ("pydantic" in found, len(found) < most) == ("plan" in arguments, True)


def test_a_plan_waits_for_no_more_than_it_needs() -> None:
    """Half a second of a core where it took one: 621 modules today, 57 of them our folders."""
    found = modules(*PLAN)
    unneeded = {"rich", "yaml", "kubernetes", "aiohttp", "asyncio", "cryptography", "numpy", "closeknit.kube"}
    assert found & unneeded == set()
    assert len(found) < 640


@pytest.mark.parametrize("module", ["typer", "pydantic", "closeknit.scheduling.decision"])
def test_who_interrupts_it_is_told_nothing(module: str) -> None:
    ended = started(*PLAN, interrupted=module)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("program", "name", "arguments", "missing", "extra"),
    [
        ("command", "closeknit", ["--help"], "typer", "cli"),
        ("command", "closeknit", PLAN, "immutables", "cli"),
        ("command", "closeknit", PLAN[:-2], "rich", "cli"),
        ("command", "closeknit", ["topology", "--kubeconfig", "/dev/stdin"], "kubernetes", "cli"),
        ("operator", "closeknit-operator", ["--help"], "kopf", "operator"),
        ("agent", "closeknit-agent", ["--help"], "typer", "agent"),
    ],
)
def test_an_installation_without_its_extra_names_that(
    program: str, name: str, arguments: list[str], missing: str, extra: str
) -> None:
    ended = started(*arguments, program=program, missing=(missing,))
    words = f"{name}: needs {missing}, which this installation lacks: pip install 'closeknit[{extra}]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", words)


SAID = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}'
BY_PROGRAM = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: echo, args: ['{SAID}']}}}}"


@pytest.mark.parametrize("user", ["{token: t}", BY_PROGRAM], ids=["token", "program"])
@pytest.mark.parametrize("arguments", [["explain", "a"], ["jobs"]], ids=" ".join)
def test_what_a_person_asks_again_and_again_waits_for_no_models(
    arguments: list[str], user: str, tmp_path: Path
) -> None:
    """0.35 s of a core where it took 2: 370 modules today. The cluster is not there; all that asks it is imported."""
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.partition("users:")[0] + f"users: [{{name: u, user: {user}}}]")
    ended = started(*arguments, "--kubeconfig", str(file), is_counted=True)
    words, names = ended.stderr.splitlines()
    assert words.startswith("closeknit: cannot ask the cluster: ")
    found = set(json.loads(names))
    unneeded = {"rich", "kubernetes", "aiohttp", "immutables", "closeknit.placement", "closeknit.api.trainingjob"}
    assert found & unneeded == set()
    assert len(found) < 400


def test_where_ranks_sit_waits_for_nothing_that_decides(tmp_path: Path) -> None:
    """0.47 s of a core to import where it took 0.8: 672 modules before."""
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.partition("users:")[0] + "users: [{name: u, user: {token: t}}]")
    ended = started("ranks", "a", "--kubeconfig", str(file), is_counted=True)
    found = set(json.loads(ended.stderr.splitlines()[1]))
    assert found & {"rich", "kubernetes", "aiohttp", "closeknit.scheduling"} == set()
    assert "closeknit.api.trainingjob" in found


def test_its_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"closeknit {version('closeknit')}\n")


COMMANDS = [each.callback.__name__ for each in app.registered_commands if each.callback is not None]


@pytest.mark.parametrize("command", [[], *([each] for each in COMMANDS)], ids=" ".join)
def test_h_is_help(command: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*command, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert max(map(len, short.stdout.splitlines())) <= 80


def test_what_is_asked_most_stands_first_each_in_a_line() -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == [*_ORDER, *(each for each in COMMANDS if each not in _ORDER)]
    assert not any("..." in line for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_reads_calls_the_command_back(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert f"_CLOSEKNIT_COMPLETE=complete_{shell}" in result.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [("pl", "plan"), ("topology --from", "--from-smi"), ("plan -o j", "json"), ("completion z", "zsh")],
)
def test_a_shell_completes_commands_options_and_words(words: str, completed: str) -> None:
    """In the very bash, by the very program that is installed."""
    script = f"""
      source <(closeknit completion bash)
      COMP_WORDS=(closeknit {words}); COMP_CWORD={len(words.split())}
      $(complete -p closeknit | sed 's/.*-F \\([^ ]*\\).*/\\1/') closeknit
      echo "${{COMPREPLY[@]}}"
    """
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
    ended = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == (f"{completed}\n", "")
