"""The preflight of an image without PyTorch: the program itself, with libraries that have NCCL's and CUDA's prototypes
(nccl.h 2.27, cuda.h 12) and refuse arguments that a GPU would."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from closeknit.launch.manifests.preflight_container import PROGRAM
from harness.install import free_port

WAIT_S = 120
NCCL = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { ncclUniqueId id; int count; } *ncclComm_t;
static void *booked = (void *)0x7f0000001000;
static int local(void) {  // of this process: the last argument but one
  char text[1 << 17], *last = text, *word = text, *before = text;
  FILE *file = fopen("/proc/self/cmdline", "r");
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  for (text[length] = 0; word < text + length; word += strlen(word) + 1) before = last, last = word;
  return atoi(before);
}
int ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, 64, "made by %d", getpid());
  id->internal[127] = '!';
  return 0;
}
int ncclCommInitRank(ncclComm_t *comm, int count, ncclUniqueId id, int rank) {
  if (strncmp(id.internal, "made by ", 8) || id.internal[127] != '!') return 4;
  if (count < 2 || rank < 0 || rank >= count) return 4;
  *comm = malloc(sizeof **comm);
  (*comm)->id = id;
  (*comm)->count = count;
  return 0;
}
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, ncclComm_t comm, void *stream) {
  if (from != booked || to != booked || count != 64 << 20 || type != 7 || op != 0 || !comm || stream) return 4;
  if (getenv("BROKEN")) {
    if (*getenv("BROKEN") == 'w') fprintf(stderr, "host:1:1 [0] nvls.cc:9 NCCL WARN why\n%1000s\n", "words");
    return 2;
  }
  if (getenv("WORDY")) printf("NCCL INFO of which the end comes later"), fflush(stdout);
  const char *slow = getenv("SLOW");
  usleep(comm->count > 2 ? 100000 : slow && strchr(slow, '0' + local()) ? 60000 : 10000);
  return 0;
}
int ncclGetVersion(int *version) {
  *version = getenv("VERSION") ? atoi(getenv("VERSION")) : 0;
  return 0;
}
const char *ncclGetErrorString(int result) { return result == 2 ? "unhandled system error" : "invalid argument"; }
"""
CUDA = r"""
#include <stddef.h>
typedef unsigned long long CUdeviceptr;
static int began, current;
int cuInit(unsigned int flags) { began = !flags; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &current; return began && device < 2 ? 0 : 101; }
int cuCtxSetCurrent(void *context) { current = context == &current; return !current; }
int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  *at = 0x7f0000001000ull;
  return current && bytes == 256ul << 20 ? 0 : 2;
}
int cuMemsetD32_v2(CUdeviceptr at, unsigned int value, size_t words) {
  return at == 0x7f0000001000ull && !value && words == 64ul << 20 ? 0 : 1;
}
int cuCtxSynchronize(void) { return !current; }
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("libraries")
    for name, source in (("libnccl.so.2", NCCL), ("libcuda.so.1", CUDA)):
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(folder / name), "-"]
        subprocess.run(command, input=source, text=True, check=True)
    return folder


def results(
    libraries: Path,
    folder: Path,
    floor: str = "",
    ranks: str = "2,1",
    slow: tuple[str, str] = ("", ""),
    knock: Callable[[int], None] | None = None,
    **more: str,
) -> list[tuple[int, dict[str, Any]]]:
    """What the preflights of nodes with so many GPUs end with, and say; on each some local ranks are slow."""
    port = free_port()
    if knock is not None:
        threading.Thread(target=knock, args=(port,), daemon=True).start()
    told = [folder / str(node) for node in range(len(ranks.split(",")))]
    processes = [
        subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM],
            env={
                "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}",
                "CLOSEKNIT_PREFLIGHT": PROGRAM,
                "CLOSEKNIT_PREFLIGHT_RANKS": ranks,
                "CLOSEKNIT_PREFLIGHT_NODE": str(node),
                "CLOSEKNIT_PREFLIGHT_MEET": f"localhost:{port}",
                "CLOSEKNIT_PREFLIGHT_FLOOR": floor,
                "CLOSEKNIT_PREFLIGHT_ENFORCE": "1",
                "CLOSEKNIT_PREFLIGHT_RESULT": str(result),
                "SLOW": slow[node],
                **more,
            },
        )
        for node, result in enumerate(told)
    ]
    codes = [process.wait(WAIT_S) for process in processes]
    return [(code, json.loads(result.read_text())) for code, result in zip(codes, told, strict=True)]


def test_nccl_itself_is_measured_where_there_is_no_torch(libraries: Path, tmp_path: Path) -> None:
    first, second = results(libraries, tmp_path)
    assert (first[0], second[0]) == (0, 0)
    assert first[1]["world"] == second[1]["world"]
    # 2 (n - 1) / n of 268 MB in a pretended 100 ms among three, in 10 ms among the two of the first node
    assert 0 < first[1]["world"] <= 4 / 3 * (256 << 20) / 0.1 / 1e9
    assert first[1]["inside"] > first[1]["world"] and second[1]["inside"] is None
    assert (first[1]["slow"], first[1]["link"]) == ([], [])


def test_its_words_do_not_hide_the_result(libraries: Path, tmp_path: Path) -> None:
    ((code, said),) = results(libraries, tmp_path, ranks="2", WORDY="1")
    assert (code, said["below"]) == (0, False)


def test_what_others_send_to_its_port_is_left_aside(libraries: Path, tmp_path: Path) -> None:
    """As whoever looks for open ports does."""
    stop = threading.Event()

    def knock(port: int) -> None:
        for words in cycle([b"", b"GET / HTTP/1.1\r\n\r\n", b"-7\n", b"99\n"]):
            if stop.wait(0.01):
                return
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as link:
                link.sendall(words)

    found = results(libraries, tmp_path, knock=knock)
    stop.set()
    assert [code for code, _ in found] == [0, 0], found


def test_a_slow_link_has_a_name(libraries: Path, tmp_path: Path) -> None:
    found = results(libraries, tmp_path, floor="1000")
    assert [(code, said["link"], said["ranks"]) for code, said in found] == [(1, [0, 1], [])] * 2


def test_a_slow_nic_has_a_name(libraries: Path, tmp_path: Path) -> None:
    """Those of the second GPUs, which rank 0 alone would not see."""
    found = results(libraries, tmp_path, floor="1000", ranks="2,2", slow=("1", "1"))
    assert [(code, said["slow"], said["link"], said["ranks"]) for code, said in found] == [(1, [], [0, 1], [1, 3])] * 2


def test_one_node_below_the_prediction_says_so(libraries: Path, tmp_path: Path) -> None:
    ((code, said),) = results(libraries, tmp_path, floor="1000", ranks="2")
    assert (code, said["below"], said["slow"], said["link"], said["ranks"]) == (1, True, [], [], [])
    ((code, said),) = results(libraries, tmp_path, floor="0.001", ranks="2")
    assert (code, said["below"]) == (0, False)


def test_slow_gpus_of_a_node_have_names(libraries: Path, tmp_path: Path) -> None:
    found = results(libraries, tmp_path, ranks="2,2", slow=("", "01"))
    assert [(code, said["slow"], said["link"], said["ranks"]) for code, said in found] == [(1, [1], [], [2, 3])] * 2


@pytest.mark.parametrize(("number", "expected"), [("22809", "2.28.9"), ("2708", "2.7.8"), ("", None)])
def test_the_version_is_that_of_the_loaded_library(
    libraries: Path, tmp_path: Path, number: str, expected: str | None
) -> None:
    """nccl.h: X * 10000 + Y * 100 + Z, and X * 1000 before 2.9."""
    ((_, said),) = results(libraries, tmp_path, ranks="2", VERSION=number)
    assert said["nccl"] == expected


def test_what_nccl_says_is_told(libraries: Path, tmp_path: Path) -> None:
    found = results(libraries, tmp_path, BROKEN="1")
    assert [code for code, _ in found] == [1, 1]
    # The other node may have lost its connection to this one first.
    assert any("ncclAllReduce failed: unhandled system error" in said["error"] for _, said in found)


def test_what_nccl_warned_of_is_told_behind_many_other_words(libraries: Path, tmp_path: Path) -> None:
    ((code, said),) = results(libraries, tmp_path, ranks="2", BROKEN="words")
    assert code == 1
    assert said["error"].startswith("host:1:1 [0] nvls.cc:9 NCCL WARN why\n")
    assert said["error"].endswith("unhandled system error")
