"""The launchers that read hostfiles: what their own readers make of closeknit's."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from closeknit.api.trainingjob import Framework
from closeknit.launch.frameworks.mounted_files import FILES_PATH
from closeknit.launch.gang import Gang
from closeknit.launch.manifests.children import children
from contracts.conftest import TIMEOUT_S, Ask
from contracts.gangs import environments, gang
from harness.frameworks import DEEPSPEED, HOROVOD, MPICH, OPENMPI, Environment

MPI = gang(Framework.MPI, (2, 3, 1) + (1,) * 9)  # as many nodes as need two digits
# Open MPI 4 prints `Num procs: 2` beside the node, 5 a line of its own, and both the ranks below it.
NODE = re.compile(r"Data for node: (\S+)")
RANK = re.compile(r"Process rank: (\d+)|Data for proc: \[\S+,(\d+)\]")


def written(of: Gang, folder: Path) -> None:
    """The files of the gang in a folder."""
    (config,) = children(of).of_service
    for name, text in config["data"].items():
        (folder / name).write_text(text)


def launched(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """What a launcher prints that finds the gang's files in the folder."""
    found = {name: value.replace(FILES_PATH, str(folder)) for name, value in environment.items()}
    path = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=path | found, cwd=folder, timeout=TIMEOUT_S
    )
    return done.stdout + done.stderr


def mapped(said: str) -> list[tuple[str, list[int]]]:
    """(host, ranks) as Open MPI displays its map."""
    found: list[tuple[str, list[int]]] = []
    for line in said.splitlines():
        if node := NODE.search(line):
            found.append((node[1], []))
        elif rank := RANK.search(line):
            found[-1][1].append(int(rank[1] or rank[2]))
    return found


def planned(of: Gang) -> list[tuple[str, list[int]]]:
    return [
        (of.host(worker), list(range(worker.first_rank, worker.first_rank + worker.rank_count)))
        for worker in of.workers
    ]


def test_open_mpi_4_gives_ranks_as_planned(debian: Callable[[str], Path], tmp_path: Path) -> None:
    debian("openmpi-bin")
    written(MPI, tmp_path)
    said = launched(["/usr/bin/mpirun", "--display-map", "--do-not-launch", "true"], tmp_path, environments(MPI)[0])
    assert mapped(said) == planned(MPI), said


def test_open_mpi_5_gives_ranks_as_planned(interpreter: Callable[[Environment], Path], tmp_path: Path) -> None:
    mpirun = interpreter(OPENMPI).with_name("mpirun")
    written(MPI, tmp_path)
    command = [str(mpirun), "--bind-to", "none", "--display", "map", "--do-not-launch", "true"]
    said = launched(command, tmp_path, environments(MPI)[0])
    assert mapped(said) == planned(MPI), said


MORE = gang(Framework.MPI, (1, 1), networks="rail0")
ELSEWHERE = re.compile("None of the TCP networks specified|No network interfaces were found")


def test_open_mpi_4_keeps_to_the_pods_own_interface(debian: Callable[[str], Path], tmp_path: Path) -> None:
    debian("openmpi-bin")
    keeps_to_one(Path("/usr/bin/mpirun"), "OMPI_MCA_oob_tcp_if_include", tmp_path)


def test_open_mpi_5_keeps_to_the_pods_own_interface(interpreter: Callable[[Environment], Path], tmp_path: Path) -> None:
    keeps_to_one(interpreter(OPENMPI).with_name("mpirun"), "PRTE_MCA_prte_if_include", tmp_path)


def keeps_to_one(mpirun: Path, of_launcher: str, folder: Path) -> None:
    """Its ranks read the name, and so does the launcher, which says that this machine lacks such an interface."""
    written(MORE, folder)
    environment = environments(MORE)[0]
    command = [str(mpirun.with_name("ompi_info")), "--param", "btl", "tcp", "--level", "9", "--parsable"]
    assert "btl_tcp_if_include:value:eth0\n" in launched(command, folder, environment)
    assert environment[of_launcher] == "eth0"
    command = [str(mpirun), "--bind-to", "none", "-n", "1", "true"]
    alone = {name: value for name, value in environment.items() if "hostfile" not in name}
    # Under load PRRTE ends now and then before its own words are out, and has said nothing then.
    assert any(ELSEWHERE.search(launched(command, folder, alone | {of_launcher: "nosuch0"})) for _ in range(3))
    assert not ELSEWHERE.search(launched(command, folder, {n: v for n, v in alone.items() if n != of_launcher}))


def test_hydra_gives_ranks_as_planned(interpreter: Callable[[Environment], Path], tmp_path: Path) -> None:
    """The reader of MPICH, and of Intel MPI, which is made from it and reads it by names of its own."""
    mpiexec = interpreter(MPICH).with_name("mpiexec.hydra")
    written(MPI, tmp_path)
    environment = environments(MPI)[0]
    assert environment["HYDRA_IFACE"] == "eth0"
    environment["HYDRA_IFACE"] = "lo"  # which is here, too
    # Whatever would be started by ssh is printed instead.
    (tmp_path / "ssh").write_text('#!/bin/sh\necho "started $*"\n')
    (tmp_path / "ssh").chmod(0o755)
    options = ["-verbose", "-launcher-exec", str(tmp_path / "ssh"), "-n", environment["CLOSEKNIT_WORLD_SIZE"]]
    said = launched(["timeout", "60", str(mpiexec), *options, "true"], tmp_path, environment)
    found = [
        (host, list(range(int(first), int(first) + int(count))))
        for host, first, count in re.findall(r"--hostname (\S+) .*--exec-rank (\d+) --exec-proc-count (\d+)", said)
    ]
    assert found == planned(MPI), said[-3000:]
    assert "--control-port 127.0.0.1:" in said  # an address, and not this host's name
    for name in ("HOST_FILE", "IFACE"):
        assert environments(MPI)[0][f"I_MPI_HYDRA_{name}"] == environments(MPI)[0][f"HYDRA_{name}"]


def test_deepspeed_starts_each_node_without_ssh(
    ask: Ask, interpreter: Callable[[Environment], Path], tmp_path: Path
) -> None:
    """As examples/deepspeed.yaml calls it."""
    of = gang(Framework.DEEPSPEED, (2, 3))
    written(of, tmp_path)
    calls = [
        [
            "--no_ssh",
            f"--node_rank={each['PET_NODE_RANK']}",
            f"--master_addr={each['MASTER_ADDR']}",
            f"--hostfile={tmp_path}/hostfile",
            "train.py",
        ]
        for each in environments(of)
    ]
    found: list[dict[str, Any]] = ask(interpreter(DEEPSPEED), "deepspeed_launcher.py", calls)
    first, second = (of.host(worker) for worker in of.workers)
    world = {first: [0, 1], second: [0, 1, 2]}
    assert found == [
        {"node_rank": rank, "master_addr": first, "master_port": "29500", "world_info": world} for rank in ("0", "1")
    ]
    assert [list(each["world_info"]) for each in found] == [[first, second]] * 2


def test_horovod_reads_the_hosts_in_their_order(
    ask: Ask, interpreter: Callable[[Environment], Path], tmp_path: Path
) -> None:
    of = gang(Framework.HOROVOD, (2, 3))
    written(of, tmp_path)
    found = ask(interpreter(HOROVOD), "horovod_hosts.py", {"hostfile": str(tmp_path / "hostfile"), "processes": 5})
    assert [(each["host"], each["ranks"]) for each in found] == planned(of)
