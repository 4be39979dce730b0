"""What a trainer's command says of ranks and hosts: arguments of launchers, and variables that a script sets.

An argument wins over the variable that closeknit sets, and all Pods have the same arguments. A command is read as far
as its words go: what a shell fills in, or a script file does, is not seen.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from closeknit.launch.frameworks.hostfile import HOSTFILE_PATH, MACHINEFILE_PATH
from closeknit.launch.gang import Gang

_MOST_TOLD = 16  # of the 64 warnings that a status has room for
_MOST_LINES = 64  # of a script are read, of those that name a launcher or set a variable
_MOST_LENGTH = 8192  # of a line of a script: shlex reads a megabyte a second
_DIGITS = 9  # of a number of processes
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SAYING = frozenset(
    {"echo", "printf", "which", "type", "command", "pip", "pip3", "apt", "apt-get", "grep", "test", "["}
)
_LAUNCHER = re.compile(r"torchrun|torch\.distributed\.|deepspeed|mpirun|mpiexec|orterun|prterun|horovodrun|accelerate")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_FILLED_IN = re.compile(r"\$\(\([^()]*\)\)|\$\([^()]*\)|`[^`]*`")  # a shell's own commands, and sums
_SETTING = re.compile(r"(?:^|[\s;&|(])[A-Z][A-Z0-9_]{2,}=")


class Undoing(NamedTuple):
    """An argument that undoes the placement."""

    name: str
    value: str | None
    """None of one that takes no value."""
    why: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is wrong with an argument, where a value of it `is_harmful`."""

    name: str
    """As people know it."""
    why: str
    is_harmful: Callable[[str, Gang], bool]


def undoing(gang: Gang, container: Mapping[str, Any], planned: Mapping[str, str]) -> tuple[Undoing, ...]:
    """The arguments of launchers in the command of a trainer that undo the placement, each once. `planned` are the
    variables that closeknit sets in node rank 0."""
    found: dict[str, Undoing] = {}
    for words in _commands(_words(container)):
        launcher, options = _launched(words)
        for key, value in options:
            rule = launcher.rules.get(key)
            if rule is None or rule.name in found or _is_filled_in(value):
                continue
            is_planned = value is not None and planned.get(_PLANNED.get(rule.name, "")) == value.strip()
            if not is_planned and rule.is_harmful(value or "", gang):
                found[rule.name] = Undoing(rule.name, value, rule.why)
    return tuple(found.values())[:_MOST_TOLD]


def set_by_script(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the script of a trainer's command sets to what its own words say: name -> value, the last of a
    name."""
    found: dict[str, str] = {}
    for words in _commands(_words(container)):
        for word in _without_wrappers(words):
            match = _ASSIGNMENT.fullmatch(word)
            if match is None:
                break
            if not _is_filled_in(match[2]):
                found[match[1]] = match[2]
    return found


def _is_filled_in(value: str | None) -> bool:
    """Whether Kubernetes or a shell puts something into it."""
    return value is not None and "$" in value


def _words(container: Mapping[str, Any]) -> list[str]:
    """Of the command and its arguments, as the API server may yet refuse them."""
    given = [container.get(field) for field in ("command", "args")]
    return [word for each in given if isinstance(each, list) for word in each if isinstance(word, str)]


def _commands(words: Sequence[str], depth: int = 0) -> Iterator[list[str]]:
    """The simple commands of a command line: itself, or those of the script that it gives to a shell."""
    script = _script(words)
    if script is None:
        yield list(words)
        return
    lines = re.sub(r"\\\r?\n", " ", script).splitlines()
    for line in [each for each in lines if _LAUNCHER.search(each) or _SETTING.search(each)][:_MOST_LINES]:
        for command in _simple(line[:_MOST_LENGTH]):
            if depth < 2 and _script(command) is not None:
                yield from _commands(command, depth + 1)
            else:
                yield command


def _script(words: Sequence[str]) -> str | None:
    """What a shell is given by -c, alone or with other letters."""
    for at, word in enumerate(words):
        if word.rpartition("/")[2] in _SHELLS:
            for option, script in zip(words[at + 1 :], words[at + 2 :], strict=False):
                if not option.startswith("-"):
                    break
                if not option.startswith("--") and option.endswith("c"):
                    return script
    return None


def _simple(line: str) -> Iterator[list[str]]:
    """The commands of a line of a script, without what joins them."""
    line = _FILLED_IN.sub("$0", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation that goes on in the next line
        words = line.split()
    command: list[str] = []
    for word in words:
        if word and not word.strip(";&|()"):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def _without_wrappers(words: Sequence[str]) -> list[str]:
    """A command from the first variable that it sets on: `export A=1`, `exec env A=1 python`."""
    at = 0
    while at < len(words) and words[at] in {"export", "env", "exec", "declare", "then", "do", "else", "{", "-x"}:
        at += 1
    return list(words[at:])


def _launched(words: Sequence[str]) -> tuple["_Launcher", list[tuple[str, str | None]]]:
    """The launcher that a simple command starts, with its own options: those before the program that it starts; without
    any where it starts none."""
    named = [word.rpartition("/")[2] for word in words]
    if named and words[0].startswith("--"):  # of the image's entrypoint
        return _Launcher(_OF_TORCHRUN_ALONE, _TORCHRUN.flags), _options(words, _TORCHRUN.flags)
    for at, name in enumerate(named):
        if name in _SAYING or name.endswith((".py", ".sh")):
            break
        rest = words[at + 1 :]
        if name.startswith("python"):
            own = next((number for number, word in enumerate(rest) if word == "-m" or not word.startswith("-")), 0)
            rest = rest[own + 1 :] if rest[own : own + 1] == ["-m"] else rest[own:]
            launcher, rest = _LAUNCHERS.get(rest[0].rpartition("/")[2] if rest else ""), rest[1:]
            return (launcher, _options(rest, launcher.flags)) if launcher else _NONE
        launcher = _LAUNCHERS.get(name)
        is_value = at > 0 and words[at - 1].startswith("--") and "=" not in words[at - 1]
        if launcher is None or is_value:
            continue
        if name == "accelerate":
            if rest[:1] != ["launch"]:
                break
            rest = rest[1:]
        return launcher, _options(rest, launcher.flags)
    return _NONE


def _options(words: Sequence[str], flags: frozenset[str]) -> list[tuple[str, str | None]]:
    """Name and value of each option before the first word that is none."""
    found: list[tuple[str, str | None]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at].strip("-"):
        name, equals, value = words[at].partition("=")
        key = name.lstrip("-").replace("_", "-")
        at += 1
        if equals:
            found.append((key, value))
        elif key in flags or at == len(words) or (words[at].startswith("-") and not _is_number(words[at])):
            found.append((key, None))
        elif key in _OF_TWO_VALUES:
            at += 2
        elif _is_program(words[at]):
            break
        else:
            found.append((key, words[at]))
            at += 1
    return found


def _is_program(word: str) -> bool:
    name = word.rpartition("/")[2]
    return name.startswith("python") or name in _SHELLS or name.endswith((".py", ".sh"))


def _is_number(word: str) -> bool:
    return word.lstrip("-").isdecimal()


def _number(value: str) -> int | None:
    """That a text is, of a few digits of it; None for words such as gpu or auto."""
    text = value.strip()
    return int(text[:_DIGITS]) if text.isascii() and text.isdecimal() else None


def is_above_gpus(value: str, gang: Gang) -> bool:
    """Whether this is a number of processes that the GPUs of some Pod do not suffice for."""
    wanted = _number(value)
    return wanted is not None and wanted > min(worker.rank_count for worker in gang.workers)


def _is_spread(_value: str, gang: Gang) -> bool:
    return gang.is_spread


def _is_not_nodes(value: str, gang: Gang) -> bool:
    return value.strip() not in (str(len(gang.workers)), f"{len(gang.workers)}:{len(gang.workers)}")


def _is_not_ranks(value: str, gang: Gang) -> bool:
    wanted = _number(value)
    return wanted is not None and (wanted > gang.world_size or (gang.is_spread and wanted != gang.world_size))


def _is_other_file(value: str, gang: Gang) -> bool:
    return gang.is_spread and value.strip() not in (HOSTFILE_PATH, MACHINEFILE_PATH)


def _is_other_backend(value: str, gang: Gang) -> bool:
    return gang.is_spread and value.strip() != ("static" if gang.job.spec.elastic is None else "c10d")


def _always(_value: str, _gang: Gang) -> bool:
    return True


ABOVE_GPUS = "a Pod of the job has fewer GPUs than that, and a rank without one of its own fails; leave it out"
_NODES = "the job has another number of nodes: ranks wait for ever, or train apart; leave it out"
_EVERY_POD = "all Pods have the same arguments, and would all be this one; leave it out, closeknit sets it for each"
_MEETING = "ranks meet at node rank 0 of the placement, and nowhere else; leave it out, closeknit sets it"
_ORDER = "such a rendezvous gives out ranks in its own order, and not in that of the placement; leave it out"
_ATTEMPTS = "the Pods of an attempt before have the same one, and may be met there; leave it out"
_ALONE = "each Pod would train by itself; leave it out"
_RANKS = "the job has another number of ranks; leave it out, or write $(CLOSEKNIT_WORLD_SIZE)"
_HOSTS = "these hosts are not those of the placement, whose order is in /etc/closeknit/hostfile; leave it out"
_CHOSEN = "the container sees the GPUs that were chosen for it alone, under indexes from 0; leave it out"

_NPROC = _Rule("--nproc-per-node", ABOVE_GPUS, is_above_gpus)
_NODE_RANK = _Rule("--node-rank", _EVERY_POD, _is_spread)
_ADDRESS = _Rule("--master-addr", _MEETING, _is_spread)
_NNODES = _Rule("--nnodes", _NODES, _is_not_nodes)
_BACKEND = _Rule("--rdzv-backend", _ORDER, _is_other_backend)
_ENDPOINT = _Rule("--rdzv-endpoint", _MEETING, _is_spread)
_OF_TORCHRUN_ALONE: Mapping[str, _Rule] = {
    "nnodes": _NNODES, "nproc-per-node": _NPROC, "rdzv-backend": _BACKEND, "rdzv-endpoint": _ENDPOINT,
}  # fmt: skip
_NP = _Rule("-np", _RANKS, _is_not_ranks)
_HOSTFILE = _Rule("--hostfile", _HOSTS, _is_other_file)
_HOST_LIST = _Rule("-H", _HOSTS, _is_spread)
_PER_NODE = _Rule("-npernode", ABOVE_GPUS, is_above_gpus)

# Variables by which closeknit says the same, where an argument may repeat it.
_PLANNED: Mapping[str, str] = {
    "--nnodes": "PET_NNODES", "--master-addr": "MASTER_ADDR", "--rdzv-endpoint": "PET_RDZV_ENDPOINT",
    "--rdzv-backend": "PET_RDZV_BACKEND",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Launcher:
    """A program that starts ranks."""

    rules: Mapping[str, _Rule]
    """By the option without its dashes, with - for _."""
    flags: frozenset[str]
    """Options of it that take no value."""


_TORCHRUN = _Launcher(
    {
        **_OF_TORCHRUN_ALONE,
        "node-rank": _NODE_RANK,
        "master-addr": _ADDRESS,
        "rdzv-id": _Rule("--rdzv-id", _ATTEMPTS, _is_spread),
        "local-addr": _Rule("--local-addr", _EVERY_POD, _is_spread),
        "standalone": _Rule("--standalone", _ALONE, _is_spread),
    },
    frozenset({"standalone", "no-python", "run-path", "m", "module", "use-env", "h", "help"}),
)
_DEEPSPEED = _Launcher(
    {
        "node-rank": _NODE_RANK,
        "master-addr": _ADDRESS,
        "num-nodes": _Rule("--num_nodes", _NODES, _is_not_nodes),
        "num-gpus": _Rule("--num_gpus", ABOVE_GPUS, is_above_gpus),
        "hostfile": _HOSTFILE,
        "H": _HOSTFILE,
        "include": _Rule("--include", _CHOSEN, _always),
        "i": _Rule("--include", _CHOSEN, _always),
        "exclude": _Rule("--exclude", _CHOSEN, _always),
        "e": _Rule("--exclude", _CHOSEN, _always),
    },
    frozenset({"no-ssh", "no-ssh-check", "force-multi", "no-local-rank", "no-python", "module", "save-pid",
               "elastic-training", "bind-cores-to-rank", "h", "help"}),
)  # fmt: skip
_MPIRUN = _Launcher(
    {
        **dict.fromkeys(("np", "n"), _NP),
        **dict.fromkeys(("H", "host", "hosts"), _HOST_LIST),
        **dict.fromkeys(("hostfile", "machinefile", "default-hostfile", "f"), _HOSTFILE),
        **dict.fromkeys(("npernode", "ppn", "perhost", "N"), _PER_NODE),
    },
    frozenset({"allow-run-as-root", "oversubscribe", "nooversubscribe", "use-hwthread-cpus", "tag-output",
               "report-bindings", "display-map", "display-allocation", "v", "verbose", "q", "quiet", "d", "l",
               "prepend-rank", "genvall",
               "nolocal", "enable-recovery", "gloo", "mpi", "disable-cache", "h", "help", "V", "version"}),
)  # fmt: skip
_OF_TWO_VALUES = frozenset({"mca", "gmca", "prtemca", "pmixmca", "omca", "genv", "env"})  # of mpirun's
_ACCELERATE = _Launcher(
    {
        "num-machines": _Rule("--num_machines", _NODES, _is_not_nodes),
        "machine-rank": _Rule("--machine_rank", _EVERY_POD, _is_spread),
        "num-processes": _Rule("--num_processes", _RANKS, _is_not_ranks),
        "main-process-ip": _Rule("--main_process_ip", _MEETING, _is_spread),
        "rdzv-backend": _BACKEND,
        "gpu-ids": _Rule("--gpu_ids", _CHOSEN, lambda value, _gang: value.strip() != "all"),
    },
    frozenset({"multi-gpu", "cpu", "tpu", "use-deepspeed", "use-fsdp", "use-megatron-lm", "use-xpu", "same-network",
               "no-python", "m", "module", "debug", "q", "quiet", "main-training-function", "h", "help",
               "dynamo-use-fullgraph", "dynamo-use-dynamic", "enable-cpu-affinity"}),
)  # fmt: skip
_NONE: tuple[_Launcher, list[tuple[str, str | None]]] = (_Launcher({}, frozenset()), [])
_LAUNCHERS: Mapping[str, _Launcher] = {
    **dict.fromkeys(("torchrun", "torch.distributed.run", "torch.distributed.launch"), _TORCHRUN),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), _DEEPSPEED),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun"), _MPIRUN),
    **dict.fromkeys(("accelerate", "accelerate.commands.launch"), _ACCELERATE),
}
