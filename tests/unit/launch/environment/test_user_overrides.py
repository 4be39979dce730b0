"""What the user's own environment does to a job: it wins, it is warned of, and it can break nothing of ours."""

from typing import Any

import pytest

from closeknit.api.trainingjob_status import EnvironmentStatus
from closeknit.launch.environment.environment import container_environment, environment
from closeknit.launch.environment.user_overrides import _RESERVED, HarmfulSetting
from unit.launch.environment.test_environment import RDMA, gang

HARMFUL = [
    ("NCCL_RUN_DIAGNOSTICS", "1"),
    ("NCCL_ALGO", "Ring"),
    ("NCCL_PROTO", "LL128"),
    ("NCCL_MIN_NCHANNELS", "16"),
    ("NCCL_MAX_NCHANNELS", "16"),
    ("NCCL_P2P_LEVEL", "LOC"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
    ("NCCL_NET_GDR_LEVEL", "SYS"),
    ("NCCL_IB_GID_INDEX", "3"),
    ("NCCL_GRAPH_FILE", "/graph.xml"),
    ("NCCL_NVB_DISABLE", "1"),
    ("NCCL_PXN_DISABLE", "1"),
    ("NCCL_NVLS_ENABLE", "1"),
    ("NCCL_COLLNET_ENABLE", "1"),
    ("NCCL_IB_TIMEOUT", "22"),
    ("NCCL_IB_DISABLE", "1"),
    ("NCCL_IB_HCA", "mlx5_1"),
    ("NCCL_SOCKET_IFNAME", "^docker0"),
    ("NCCL_CUMEM_ENABLE", "0"),
    ("NCCL_COMM_ID", "10.0.0.1:4000"),
    ("NCCL_HOSTID", "a"),
    ("CUDA_VISIBLE_DEVICES", "4,5"),
    ("NVIDIA_VISIBLE_DEVICES", "all"),
    ("CUDA_DEVICE_ORDER", "FASTEST_FIRST"),
    ("NCCL_MULTI_RANK_GPU_ENABLE", "1"),
]
HARMLESS = [
    ("NCCL_P2P_DISABLE", "0"),
    ("NCCL_RUN_DIAGNOSTICS", "0"),
    ("NCCL_NET_GDR_LEVEL", "PHB"),
    ("NCCL_IB_GID_INDEX", "-1"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_IB_DISABLE", "0"),
    ("NCCL_IB_HCA", "=mlx5_1"),
    ("NCCL_IB_HCA", "^=mlx5_1"),
    ("NCCL_SOCKET_IFNAME", "^docker,lo,virbr,veth"),
    ("NCCL_SOCKET_IFNAME", "=eth0"),
    ("NCCL_CROSS_NIC", "1"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ("NCCL_DEBUG", "TRACE"),
    ("EPOCHS", "3"),
]


def hazards(*entries: dict[str, Any], **facts: Any) -> tuple[HarmfulSetting, ...]:
    return environment(gang(8, 8, trainer={"env": list(entries)}, **{**RDMA, **facts}), 0).hazards


@pytest.mark.parametrize(
    ("value", "has_data_direct", "is_told"),
    [("0", True, True), ("1", True, False), ("2", True, False), ("0", False, False)],
)
def test_data_direct_is_harmful_to_leave_where_there_is_some(value: str, has_data_direct: bool, is_told: bool) -> None:
    """NCCL then takes the NIC's own function and the CPU (net_ib/init.cc of 2.30.7: IB_DATA_DIRECT, 1 by default)."""
    told = hazards({"name": "NCCL_IB_DATA_DIRECT", "value": value}, has_data_direct=has_data_direct)
    assert [hazard.name for hazard in told] == (["NCCL_IB_DATA_DIRECT"] if is_told else [])


@pytest.mark.parametrize(("name", "value"), HARMFUL)
def test_a_harmful_setting_is_kept_and_warned_of(name: str, value: str) -> None:
    of = gang(8, 8, trainer={"env": [{"name": name, "value": value}]}, **RDMA)
    (found,) = environment(of, 1).hazards
    assert str(found).startswith(f"{name}={value}: ")
    assert container_environment(of, 1)[name] == value


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_other_settings_are_nobodys_business(name: str, value: str) -> None:
    assert hazards({"name": name, "value": value}) == ()


def test_crossing_isolated_rails_is_harmful() -> None:
    from closeknit.api.clustertopology import Fabric  # noqa: PLC0415

    (found,) = hazards({"name": "NCCL_CROSS_NIC", "value": "1"}, fabric=Fabric(rail_isolated=True))
    assert found.name == "NCCL_CROSS_NIC"


@pytest.mark.parametrize("value", ["SYS", "5"])
@pytest.mark.parametrize("facts", [{"has_c2c": True}, {"hides_levels": True}], ids=["C2C", "no PCIe tree"])
def test_gpus_may_reach_all_nics_where_every_nic_is_at_sys(facts: dict[str, bool], value: str) -> None:
    told = hazards({"name": "NCCL_NET_GDR_LEVEL", "value": value}, **facts)
    assert "NCCL_NET_GDR_LEVEL" not in {hazard.name for hazard in told}


def test_a_value_that_kubernetes_fills_in_later_is_taken_for_harmful() -> None:
    (found,) = hazards({"name": "NCCL_ALGO", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}})
    assert (found.value, str(found).partition(":")[0]) == (None, "NCCL_ALGO")


def test_the_last_of_a_name_counts_as_in_kubernetes() -> None:
    entries = ({"name": "NCCL_P2P_DISABLE", "value": "1"}, {"name": "NCCL_P2P_DISABLE", "value": "0"})
    assert hazards(*entries) == ()


def test_ten_thousand_variables_cost_little_and_warn_of_what_is_harmful_alone() -> None:
    many = [{"name": f"V{number}", "value": "x"} for number in range(10_000)]
    of = gang(*[1] * 64, trainer={"env": [*many, {"name": "NCCL_ALGO", "value": "Ring"}]}, **RDMA)
    found = [environment(of, index) for index in range(64)]
    assert {len(each.hazards) for each in found} == {1}
    assert of.users_environment(of.members[0].role) is of.users_environment(of.members[1].role)


@pytest.mark.parametrize("value", ["Ring\n\x1b[31m" + "R" * 5000, "\u202eRing"])
def test_a_hostile_value_is_cut_in_the_words(value: str) -> None:
    (found,) = hazards({"name": "NCCL_ALGO", "value": value})
    assert len(str(found)) < 400


@pytest.mark.parametrize(
    ("value", "is_told"), [("9", True), ("8", False), ("1", False), ("gpu", False), ("9" * 5000, True)]
)
def test_more_processes_than_gpus_are_told(value: str, is_told: bool) -> None:
    found = hazards({"name": "PET_NPROC_PER_NODE", "value": value})
    assert bool(found) is is_told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["torchrun", "--nproc-per-node=9", "train.py"], "--nproc-per-node=9"),
        (["torchrun", "--nproc_per_node", "16", "train.py"], "--nproc-per-node=16"),
        (["sh", "-c", "cd /work && torchrun --nproc_per_node=9 train.py"], "--nproc-per-node=9"),
        (["torchrun", "--nproc-per-node=8", "train.py"], None),
        (["torchrun", "--nproc-per-node=gpu", "train.py"], None),
        (["torchrun", "--nproc-per-node=99999999999"], "--nproc-per-node=99999999999"),
        (["train.py", 7, None], None),
        (7, None),
        ("torchrun", None),
    ],
)
def test_more_processes_than_gpus_in_the_command_are_told(command: Any, told: str | None) -> None:
    for field in ("command", "args"):
        found = environment(gang(8, 8, trainer={field: command}), 0).hazards
        assert [str(each).partition(":")[0] for each in found] == ([] if told is None else [told])


def shell(script: str) -> list[str]:
    return ["/bin/bash", "-lc", script]


TORCHRUN = "torchrun --nnodes=1:4 --rdzv_backend=etcd --rdzv-endpoint=etcd:2379 --rdzv_id job train.py"
OF_TORCHRUN = ["--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"]
UNDOING = {
    "another rendezvous": (TORCHRUN.split(), OF_TORCHRUN),
    "in a script": (shell(f"set -e\ncd /work && exec {TORCHRUN} | tee log\n"), OF_TORCHRUN),
    "over several lines": (shell("torchrun \\\n  --nnodes=4 \\\n  train.py"), ["--nnodes"]),
    "in a shell in a shell": (shell("bash -c 'torchrun --nnodes 4 train.py'"), ["--nnodes"]),
    "as a module": (["python3", "-u", "-m", "torch.distributed.run", "--nnodes=1", "--node_rank=0"],
                    ["--nnodes", "--node-rank"]),
    "as its forerunner": (["python", "-m", "torch.distributed.launch", "--use_env", "--master_addr=10.0.0.1", "t.py"],
                          ["--master-addr"]),
    "as a file": (["/opt/conda/bin/python", "/opt/conda/bin/torchrun", "--standalone", "t.py"], ["--standalone"]),
    "behind other programs": (["numactl", "--cpunodebind=0", "nsys", "profile", "-o", "out", "torchrun", "--nnodes=3"],
                              ["--nnodes"]),
    "of the image's entrypoint": (["--nnodes=1:4", "train.py"], ["--nnodes"]),
    "deepspeed": (["deepspeed", "--no_ssh", "--node_rank=0", "--hostfile", "/job/hosts", "--include", "localhost:4,5",
                   "--num_nodes=1", "train.py"], ["--hostfile", "--include", "--node-rank", "--num_nodes"]),
    "deepspeed's short options": (["deepspeed", "-H", "hosts", "-i", "a:0", "train.py"], ["--hostfile", "--include"]),
    "mpirun": (["mpirun", "--allow-run-as-root", "-np", "2", "-H", "a:1,b:1", "python", "t.py"], ["-H", "-np"]),
    "mpirun's other names": (["mpiexec.hydra", "-n", "32", "-f", "hosts", "-genv", "A", "1", "-ppn", "9", "python"],
                             ["--hostfile", "-np", "-npernode"]),
    "mpirun with a machine file": (["mpirun", "--mca", "btl", "^openib", "--machinefile", "m", "t"], ["--hostfile"]),
    "horovodrun": (shell("horovodrun -np 8 --hostfile hosts python t.py"), ["--hostfile", "-np"]),
    "accelerate": (["accelerate", "launch", "--multi_gpu", "--num_machines=1", "--machine_rank", "0", "--num_processes",
                    "8", "--gpu_ids=0,1", "t.py"],
                   ["--gpu_ids", "--machine_rank", "--num_machines", "--num_processes"]),
    "a variable of a script": (shell("export NCCL_P2P_DISABLE=1 MASTER_ADDR=localhost\npython t.py"),
                               ["MASTER_ADDR", "NCCL_P2P_DISABLE"]),
    "a variable before a command": (["sh", "-c", "NCCL_ALGO=Ring CUDA_VISIBLE_DEVICES=4,5 torchrun t.py"],
                                    ["CUDA_VISIBLE_DEVICES", "NCCL_ALGO"]),
    "a variable by env": (["env", "NCCL_ALGO=Ring", "torchrun", "t.py"], ["NCCL_ALGO"]),
}  # fmt: skip


@pytest.mark.parametrize(("command", "told"), UNDOING.values(), ids=UNDOING.keys())
def test_arguments_that_undo_the_placement_are_told_as_variables_are(command: list[str], told: list[str]) -> None:
    """On two nodes of eight GPUs."""
    assert sorted({each.name for each in environment(gang(8, 8, trainer={"command": command}), 1).hazards}) == told
    first, *rest = command
    found = environment(gang(8, 8, trainer={"command": [first], "args": rest}), 0).hazards
    assert sorted({each.name for each in found}) == told


def test_a_status_has_room_for_whatever_is_told() -> None:
    """All variables at once, and a script that starts every launcher in every wrong way."""
    script = "\n".join(" ".join(command) for command, _ in UNDOING.values() if "bash" not in command[0])
    env = [{"name": name, "value": value} for name, value in HARMFUL]
    env += [{"name": name, "value": "mine"} for name in _RESERVED]
    made = environment(gang(8, 8, trainer={"env": env, "command": shell(script)}, **RDMA), 0)
    assert len(EnvironmentStatus(warnings=[str(each) for each in made.warnings]).warnings) > len(HARMFUL) + 10


HARMLESS_COMMANDS = {
    "what is planned": "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=static --numa-binding=node train.py",
    "the same, by variables": "torchrun --nnodes=$PET_NNODES --node_rank=${PET_NODE_RANK} --master_addr=$ADDR t.py",
    "by commands of the shell": "torchrun --nnodes=$(cat nodes) --node_rank=`hostname` --rdzv_endpoint $HOST:294 t.py",
    "arguments of the script": "torchrun train.py --nnodes=1 --node_rank=0 --rdzv_backend=etcd --standalone",
    "arguments of a module": "torchrun -m pkg.train --nnodes=1 --node_rank=0",
    "of another launcher's name": "python train.py --launcher deepspeed --num_nodes 1 --include a",
    "of a script of the user's": "python launch.py --nnodes=1 --hostfile x; ./run.sh mpirun -np 2",
    "words that are said": "echo torchrun --nnodes=1; which mpirun; pip install deepspeed --no-deps",
    "a comment": "# torchrun --nnodes=1 --node_rank=0\ntorchrun train.py",
    "deepspeed as documented": "deepspeed --no_ssh --node_rank=$PET_NODE_RANK --master_addr=$MASTER_ADDR "
                               "--hostfile=/etc/closeknit/hostfile train.py --include me",
    "mpirun as documented": "mpirun --bind-to none python3 sum.py -np 2 -H a",
    "mpirun with all ranks": "mpirun --allow-run-as-root -np 16 -x NCCL_DEBUG=INFO --map-by slot python t.py",
    "horovodrun as documented": "horovodrun -np $CLOSEKNIT_WORLD_SIZE --hostfile /etc/closeknit/hostfile python t.py",
    "accelerate": "accelerate launch --num_machines=2 --machine_rank=$PET_NODE_RANK --num_processes=16 t --gpu_ids 0",
    "accelerate's other commands": "accelerate config --num_machines=1; accelerate test",
    "variables of the user's own": "export EPOCHS=3 NCCL_DEBUG=INFO NCCL_P2P_DISABLE=0 MASTER_PORT=29500; torchrun t",
    "variables that are filled in": "export MASTER_ADDR=$HOST NCCL_ALGO=$ALGO; torchrun t.py",
    "a quotation without end": "torchrun train.py --name 'a",
}  # fmt: skip


@pytest.mark.parametrize("script", HARMLESS_COMMANDS.values(), ids=HARMLESS_COMMANDS.keys())
def test_a_command_that_changes_nothing_is_not_told(script: str) -> None:
    assert environment(gang(8, 8, trainer={"command": shell(script)}), 0).hazards == ()


@pytest.mark.parametrize(
    "script",
    [
        "torchrun --standalone --nnodes=1 --node_rank=0 --master_addr=localhost --rdzv_backend=c10d t.py",
        "deepspeed --num_gpus=8 --master_addr 127.0.0.1 t.py",
        "mpirun -np 8 -H localhost:8 python t.py",
        "accelerate launch --num_processes=4 --num_machines=1 --machine_rank=0 t.py",
    ],
)
def test_on_one_node_there_is_nothing_to_undo(script: str) -> None:
    assert environment(gang(8, trainer={"command": shell(script)}), 0).hazards == ()


@pytest.mark.parametrize(
    "script",
    ["torchrun " * 30_000, "torchrun '" + "a" * 250_000, "A=1 " * 60_000, "\n".join(["torchrun --nnodes=1"] * 12_000),
     "bash -c 'bash -c \"bash -c torchrun\"'" * 5_000, "$(" * 100_000, "torchrun " + "\\\n" * 80_000],
)  # fmt: skip
def test_a_long_script_is_read_soon(script: str) -> None:
    """A template may have 256 KiB: no more of it is parsed than a launcher's command is long."""
    found = environment(gang(8, 8, trainer={"command": shell(script)}), 0).hazards
    assert len(found) <= 1


def test_reserved_names_of_the_users_win_and_are_told() -> None:
    names = ["PET_NODE_RANK", "MASTER_ADDR", "NCCL_NET"]
    of = gang(8, 8, trainer={"env": [{"name": name, "value": "mine"} for name in names]}, **RDMA)
    made = environment(of, 1)
    assert made.skipped == tuple(sorted(names))
    assert [variable.value for variable in made.overridden] == [
        "train-a2-worker-00000.train-a2.ml.svc",
        "IB",
        "1",
    ]
    assert [str(each) for each in made.hazards] == [
        "MASTER_ADDR=mine: ranks find each other by it, and closeknit would set train-a2-worker-00000.train-a2.ml.svc; "
        "leave it out",
        "PET_NODE_RANK=mine: ranks find each other by it, and closeknit would set another on each node; leave it out",
    ]
    assert environment(of, 0).hazards == made.hazards


@pytest.mark.parametrize(
    ("entry", "is_told"),
    [
        pytest.param({"value": "0"}, True, id="one rank for all nodes"),
        pytest.param({"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}, False, id="of each Pod its own"),
    ],
)
def test_a_rank_that_every_pod_would_have_is_told(entry: dict[str, Any], is_told: bool) -> None:
    assert bool(hazards({"name": "PET_NODE_RANK", **entry})) is is_told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("MASTER_PORT", "29500", id="what closeknit would set"),
        pytest.param("MASTER_ADDR", "$(PET_MASTER_ADDR)", id="what Kubernetes puts together"),
        pytest.param("TF_CONFIG", "{}", id="of another framework"),
        pytest.param("TORCH_NCCL_TRACE_BUFFER_SIZE", "20000", id="of the flight recorder"),
    ],
)
def test_a_reserved_name_that_changes_nothing_is_not_told(name: str, value: str) -> None:
    assert hazards({"name": name, "value": value}) == ()
