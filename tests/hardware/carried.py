"""What the course needs and a machine with GPUs has not, as archives that travel with the tree; and its unpacking.

    PYTHONPATH=tests .tools/uv/bin/uv run --locked python -m hardware.carried pack FOLDER    # here
    sh FOLDER/1/keep.sh && sh FOLDER/2/start.sh OUT                                         # there

In two parts, since a part may be all that travels at once. An archive that is there already is kept, for they take
minutes: remove what is to be made again. There, Python 3.12 and PyTorch are the machine's own; `ip` comes along with
its libraries, which a small machine lacks.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from hardware.stack import AGENT_OPTIONS
from harness.build import ensure_built
from harness.chart import CHART, NAMESPACE, REGISTRY, helm
from harness.node.projects import NODE_PROJECTS, node_programs
from harness.projects import KUBERNETES, PROJECTS, Project

ROOT = Path(__file__).parents[2]
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_28"
NOT_CARRIED = ("kwok", "helm")  # nothing is played there, and the chart is rendered here
ALONE = ("kubelet", "gpus", "coredns")  # the largest of a node's programs, an archive each
XZ = ("xz", "--x86", "--lzma2=preset=4,dict=64MiB", "--stdout")
TOOLS = ("ip", "nsenter", "unshare")
KEEP = """\
#!/bin/sh
# Unpacks the programs that lie beside this file, for start.sh.
set -e
here=$(cd "$(dirname "$0")" && pwd)
base=${BASE:-/tmp/closeknit-hardware}
mkdir -p "$base/programs"
for each in "$here"/*.xz; do
  program=$base/programs/$(basename "$each" .xz)
  (xz -dc "$each" > "$program" && chmod 755 "$program") & pids="$pids $!"
done
for each in $pids; do wait "$each"; done
"""
START = """\
#!/bin/sh
# Unpacks what lies beside this file, and runs the course; its results go to the folder given.
set -e
here=$(cd "$(dirname "$0")" && pwd)
base=${BASE:-/tmp/closeknit-hardware}
out=$1; shift
mkdir -p "$base/programs" "$base/site" "$base/tree" "$out"
(xz -dc "$here/coredns.xz" > "$base/programs/coredns" && chmod 755 "$base/programs/coredns") & pids="$pids $!"
tar -C "$base/programs" -xJf "$here/node.tar.xz" & pids="$pids $!"
tar -C "$base/site" -xJf "$here/site.tar.xz" & pids="$pids $!"
tar -C "$base/tree" -xJf "$here/tree.tar.xz" & pids="$pids $!"
for each in $pids; do wait "$each"; done
tree=$base/tree
export PYTHONPATH=$base/site:$tree/crds/src:$tree/operator/src:$tree/node-agent/src:$tree/tests
export HARDWARE_PACKAGES=$base/site XDG_CACHE_HOME=$base/cache PATH=$PATH:$base/tools PYTHONDONTWRITEBYTECODE=1
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
${PYTHON:-python3} -m hardware.carried unpack "$base"
# As in the image: a program that compiles what it imports starts later, and keeps megabytes of that.
${PYTHON:-python3} -m compileall -q -j 0 "$base/site" "$tree"/*/src || true
exec ${PYTHON:-python3} -u -m hardware.course "$here/chart.yaml" "$out" "$@"
"""


def pack(folder: Path) -> None:
    """Writes the archives that are missing into the folder, and says how large they all are."""
    makers: dict[str, Callable[[Path], object]] = {
        "1/kubernetes.xz": lambda file: _compress(ensure_built().kube_apiserver, file),
        "1/kubelet.xz": lambda file: _compress(node_programs()["kubelet"], file),
        "1/gpus.xz": lambda file: _compress(node_programs()["gpus"], file),
        "1/keep.sh": lambda file: file.write_text(KEEP),
        "2/coredns.xz": lambda file: _compress(node_programs()["coredns"], file),
        "2/node.tar.xz": _node,
        "2/site.tar.xz": _site,
        "2/tree.tar.xz": _tree,
        "2/chart.yaml": _chart,
        "2/start.sh": lambda file: file.write_text(START),
    }
    for name, make in makers.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            unfinished = file.with_name(f".{file.name}")
            make(unfinished)
            unfinished.rename(file)
    print(json.dumps({name: (folder / name).stat().st_size for name in makers}))


def unpack(base: Path) -> None:
    """Makes the cache of the harness, and the tools, of what start.sh has unpacked."""
    programs = base / "programs"
    for project in (*PROJECTS, *NODE_PROJECTS):
        own = base / "cache" / "closeknit" / project.key
        own.mkdir(parents=True, exist_ok=True)
        for program in project.programs:
            carried = "kubernetes" if project is KUBERNETES else program
            _link(own / program, programs / carried, project)
    named = base / "site" / "closeknit-0.dist-info"  # the operator says its version, which an installed package has
    named.mkdir(exist_ok=True)
    (named / "METADATA").write_text("Metadata-Version: 2.1\nName: closeknit\nVersion: 0\n")
    tools = base / "tools"
    tools.mkdir(exist_ok=True)
    for tool in TOOLS:
        libraries = f'LD_LIBRARY_PATH="{programs}/iproute"'
        (tools / tool).write_text(f'#!/bin/sh\n{libraries} exec "{programs}/iproute/{tool}" "$@"\n')
        (tools / tool).chmod(0o755)


def _link(file: Path, program: Path, project: Project) -> None:
    file.unlink(missing_ok=True)
    if project.name in NOT_CARRIED:
        file.write_text("#!/bin/sh\nexec sleep infinity\n")
        file.chmod(0o755)
    else:
        file.symlink_to(program)


def _node(file: Path) -> None:
    """Every program of a node but the largest, etcd, and the tools of a network."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program, built in {**node_programs(), "etcd": ensure_built().etcd}.items():
            if program not in ALONE:
                shutil.copy(built, folder / program)
        tools = folder / "iproute"
        tools.mkdir()
        for tool in TOOLS:
            path = shutil.which(tool)
            assert path is not None, f"PATH has no {tool}"
            shutil.copy(path, tools / tool)
            for library in _libraries(path):
                shutil.copy(library, tools / library.name)
        _archive(folder, file)


def _libraries(program: str) -> list[Path]:
    """The shared libraries of a program, but C's own, which belongs to the machine."""
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    paths = [Path(line.split("=> ")[1].split()[0]) for line in said.splitlines() if "=> /" in line]
    return [path for path in paths if not path.name.startswith(("libc.so", "ld-linux"))]


def _site(file: Path) -> None:
    """Our Python packages for the Python there, without what nobody runs."""
    uv = shutil.which("uv") or str(ROOT / ".tools/uv/bin/uv")
    export = [uv, "export", "--locked", "--no-hashes", "--all-extras", "--no-dev", "--no-emit-project"]
    wanted = subprocess.run(export, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    with tempfile.TemporaryDirectory() as name:
        folder, requirements = Path(name) / "site", Path(name) / "requirements.txt"
        requirements.write_text(f"{wanted}\ncryptography\n")  # the certificates of the control plane
        install = [uv, "pip", "install", "--quiet", f"--target={folder}", f"--python-version={PYTHON}"]
        install += [f"--python-platform={PLATFORM}", "--only-binary=:all:", f"--requirement={requirements}"]
        subprocess.run(install, check=True)
        for unused in [*folder.rglob("*.py[ixd]"), *folder.rglob("*.pxd")]:
            unused.unlink()
        for unused in [each for each in folder.rglob("*") if each.is_dir() and each.name in ("tests", "__pycache__")]:
            shutil.rmtree(unused, ignore_errors=True)
        libraries = [str(each) for each in folder.rglob("*.so")]
        subprocess.run(["strip", "--strip-all", *libraries], check=True)
        _archive(folder, file)


def _tree(file: Path) -> None:
    """The sources as they are in the working tree, tracked or not."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split("\0")
    there = [name for name in names if (ROOT / name).is_file() and not name.startswith("tests/fixtures/")]
    tar = ["tar", "--create", "--file=-", f"--directory={ROOT}", "--", *there]
    packed = subprocess.run(tar, check=True, stdout=subprocess.PIPE).stdout
    with file.open("wb") as archive:
        subprocess.run(XZ, input=packed, stdout=archive, check=True)


def _chart(file: Path) -> None:
    file.write_text(
        helm(
            ensure_built().helm,
            "template",
            "closeknit",
            str(CHART),
            f"--namespace={NAMESPACE}",
            REGISTRY,
            *AGENT_OPTIONS,
        )
    )


def _compress(program: Path, file: Path) -> None:
    with file.open("wb") as archive:
        subprocess.run([*XZ, str(program)], stdout=archive, check=True)


def _archive(folder: Path, file: Path) -> None:
    with file.open("wb") as archive, subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(XZ, stdin=tar.stdout, stdout=archive, check=True)


if __name__ == "__main__":
    {"pack": pack, "unpack": unpack}[sys.argv[1]](Path(sys.argv[2]))
