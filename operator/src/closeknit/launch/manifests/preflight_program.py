"""The program of a preflight: it runs under the image's own python, of whatever version from 3.6 on.

Nothing imports it. `preflight_container` reads it as text, without these lines: every Pod carries the rest.

One process for each GPU, through torch.distributed (NCCL on GPUs, gloo on CPUs), else through libnccl itself. Measured
are an all-reduce inside each node, one over all ranks, and, where that is slow, one over each two neighbours, so that a
slow node or link has a name; on it then one of each two ranks, so that the slow GPU or NIC has one, too. The result is
one JSON object, all its bandwidths bus bandwidths in GB/s.
"""

import json, os, subprocess, sys, time

LOG = os.environ.get("CLOSEKNIT_PREFLIGHT_RESULT", "/dev/termination-log")
COUNTS = [int(count) for count in os.environ["CLOSEKNIT_PREFLIGHT_RANKS"].split(",")]
NODE = int(os.environ["CLOSEKNIT_PREFLIGHT_NODE"])
FLOOR = float(os.environ.get("CLOSEKNIT_PREFLIGHT_FLOOR") or 0)  # GB/s over all ranks
MEET = os.environ.get("CLOSEKNIT_PREFLIGHT_MEET", "")
HOW = sys.argv[2] if len(sys.argv) > 2 else ""
LIMIT_S = 180
MOST = 100  # names of nodes
SLOW = 0.7  # of the median: nodes are alike, so that noise is far smaller


def tell(result, failed):
    with open(LOG, "w", encoding="utf-8", errors="replace") as log:
        log.write(json.dumps(result, ensure_ascii=False))  # some 3,700 bytes at most; the kubelet keeps 4,096
    print(json.dumps(result), flush=True)
    sys.exit(1 if failed and os.environ.get("CLOSEKNIT_PREFLIGHT_ENFORCE") == "1" else 0)


def median(values):
    return sorted(values)[len(values) // 2]


def library(names, folders):
    """A library that the loader finds, or that came as a package of Python's."""
    import ctypes, glob
    found = [path for base in sys.path for folder in folders for path in sorted(glob.glob(os.path.join(base, folder)))]
    error = None
    for name in names + found:
        try:
            return ctypes.CDLL(name)
        except OSError as failed:
            error = error or failed
    raise OSError(str(error))


def libraries():
    """NCCL and CUDA's driver, which the container runtime brings."""
    return library(["libnccl.so.2", "libnccl.so"], ["nvidia/nccl/lib/libnccl.so*"]), library(["libcuda.so.1"], [])


def nccl_version(compiled):
    """Of the library that this process has loaded; of one without any what torch was compiled with."""
    import ctypes
    number = ctypes.c_int()
    try:
        with open("/proc/self/maps") as maps:
            path = next(line.split()[-1] for line in maps if "/libnccl.so" in line)
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) or number.value < 2000:
            return compiled
    except (OSError, StopIteration, AttributeError):
        return compiled
    step = 10000 if number.value >= 10000 else 1000  # from 2.9 on there are four digits behind the first
    return "%d.%d.%d" % (number.value // step, number.value % step // 100, number.value % 100)


class Torch:
    def __init__(self, me, local):
        from datetime import timedelta
        import torch
        import torch.distributed as dist
        self.cuda, self.torch, self.dist = torch.cuda.is_available(), torch, dist
        device = torch.device("cuda", local) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(device)
        dist.init_process_group(
            "nccl" if self.cuda else "gloo", init_method="tcp://" + MEET,
            rank=me, world_size=sum(COUNTS), timeout=timedelta(seconds=LIMIT_S))
        self.data = torch.zeros((64 if self.cuda else 1) << 20, dtype=torch.float32, device=device)
        self.bytes = self.data.numel() * 4

    def compiled(self):
        try:
            return ".".join(map(str, self.torch.cuda.nccl.version())) if self.cuda else None
        except Exception:
            return None

    def groups(self, lists):
        return [self.dist.new_group(ranks) for ranks in lists]

    def told(self, value):
        values = [None] * sum(COUNTS)
        self.dist.all_gather_object(values, value)
        return values

    def reduce(self, group):
        self.dist.all_reduce(self.data, group=group)

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()


class Nccl:
    """NCCL itself, where there is no torch: ranks tell each other values by way of rank 0."""

    def __init__(self, me, local):
        import ctypes, socket
        self.c, self.me, self.bytes, self.lines = ctypes, me, 256 << 20, {}
        self.nccl, self.cuda = libraries()

        class Id(ctypes.Structure):
            _fields_ = [("of", ctypes.c_char * 128)]

        self.Id = Id
        self.nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self.nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
        at, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.nccl.ncclAllReduce.argtypes = [at, at, size, number, number, at, at]
        context, self.data = at(), at()
        self.drive("cuInit", 0)
        self.drive("cuDevicePrimaryCtxRetain", ctypes.byref(context), local)
        self.drive("cuCtxSetCurrent", context)
        self.drive("cuMemAlloc_v2", ctypes.byref(self.data), size(self.bytes))
        self.drive("cuMemsetD32_v2", self.data, 0, size(self.bytes // 4))
        host, port = MEET.rsplit(":", 1)
        until = time.time() + LIMIT_S
        while True:  # names of Pods are known some time after their addresses
            try:
                family, kind, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
                if me == 0:
                    server = socket.socket(family, kind)
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    server.bind(("", int(port)))
                    server.listen(sum(COUNTS))
                    server.settimeout(LIMIT_S)
                    break
                link = socket.create_connection(place[:2], timeout=LIMIT_S)
                self.lines[0] = link.makefile("rw")
                self.say(0, me)
                break
            except OSError:
                if time.time() > until:
                    raise
                time.sleep(0.5)
        while me == 0 and len(self.lines) < sum(COUNTS) - 1:
            link = server.accept()[0]
            link.settimeout(LIMIT_S)
            line = link.makefile("rw")
            try:
                other = int(line.readline(16))
            except (OSError, ValueError):
                continue  # a stranger that tries ports is no rank
            if 0 < other < sum(COUNTS):
                self.lines[other] = line

    def compiled(self):
        return None

    def say(self, to, value):
        self.lines[to].write(json.dumps(value) + "\n")
        self.lines[to].flush()

    def told(self, value):
        if self.me:
            self.say(0, value)
            return json.loads(self.lines[0].readline())
        values = [value] + [json.loads(self.lines[rank].readline()) for rank in range(1, sum(COUNTS))]
        for rank in self.lines:
            self.say(rank, values)
        return values

    def drive(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result:
            raise RuntimeError("%s failed: CUDA's error %d" % (name, result))

    def ask(self, name, *arguments):
        result = getattr(self.nccl, name)(*arguments)
        if result:
            raise RuntimeError("%s failed: %s" % (name, self.nccl.ncclGetErrorString(result).decode()))

    def groups(self, lists):
        own = {}
        for at, ranks in enumerate(lists):
            if self.me == ranks[0] and len(ranks) > 1:
                made = self.Id()
                self.ask("ncclGetUniqueId", self.c.byref(made))
                own[str(at)] = bytes(made).hex()
        known = {at: word for each in self.told(own) for at, word in each.items()}
        made = []
        for at, ranks in enumerate(lists):
            group = self.c.c_void_p()
            if self.me in ranks and len(ranks) > 1:
                word = self.Id.from_buffer_copy(bytes.fromhex(known[str(at)]))
                self.ask("ncclCommInitRank", self.c.byref(group), len(ranks), word, ranks.index(self.me))
            made.append(group)
        return made

    def reduce(self, group):
        self.ask("ncclAllReduce", self.data, self.data, self.bytes // 4, 7, 0, group, None)  # floats, their sum

    def wait(self):
        self.drive("cuCtxSynchronize")


def rank(local):
    me = sum(COUNTS[:NODE]) + local
    world = (Torch if HOW == "torch" else Nccl)(me, local)

    def measured(group, ranks, rounds=5):
        """None where this process is not in the group."""
        if me not in ranks or len(ranks) < 2:
            return None
        for turn in range(rounds + 2):
            if turn == 2:
                world.wait()
                began = time.perf_counter()
            world.reduce(group)
        world.wait()
        took = (time.perf_counter() - began) / rounds
        return 2 * (len(ranks) - 1) / len(ranks) * world.bytes / took / 1e9

    everyone = list(range(sum(COUNTS)))
    nodes = [everyone[sum(COUNTS[:node]):sum(COUNTS[:node + 1])] for node in range(len(COUNTS))]
    groups = world.groups(nodes + [everyone])  # all ranks make all groups, in one order
    told = world.told(measured(groups[NODE], nodes[NODE]))
    whole = world.told(measured(groups[-1], everyone))[0]

    def least(lists):
        """Of each list of ranks what its slowest measured."""
        found = world.told([measured(group, ranks) for group, ranks in zip(world.groups(lists), lists)])
        return [min([each[at] for each in found if each[at] is not None] or [0.0]) for at in range(len(lists))]

    def slowest(lists, reached, usual):
        """Those ranks that are farthest below what is usual; none where all are near it."""
        parts = [each / of if of else 1.0 for each, of in zip(reached, usual)]
        at = parts.index(min(parts)) if parts else -1
        return lists[at] if parts and parts[at] < SLOW else []

    inside = [told[ranks[0]] for ranks in nodes]
    slow = [node for node, each in enumerate(inside) if each and each < SLOW * median([one for one in inside if one])]
    link, ranks = [], []
    if slow:
        near = [[list(pair) for pair in zip(each, each[1:])] for each in nodes]
        reached = iter(least([pair for pairs in near for pair in pairs]))
        found = [[next(reached) for _ in pairs] for pairs in near]
        first = slow[0]
        usual = [median([each[at] for each in found if len(each) > at]) for at in range(len(found[first]))]
        ranks = slowest(near[first], found[first], usual)
    elif whole is not None and whole < FLOOR and len(nodes) > 1:
        reached = least([first + second for first, second in zip(nodes, nodes[1:])])
        at = reached.index(min(reached))
        link = [at, at + 1]
        rails = [list(pair) for pair in zip(nodes[at], nodes[at + 1])]
        reached = least(rails)
        ranks = slowest(rails, reached, [median(reached)] * len(rails))
    if local == 0:
        result = {"nodes": inside, "world": whole, "slow": slow, "link": link, "ranks": ranks}
        print("\nRESULT " + json.dumps(dict(result, nccl=nccl_version(world.compiled()))))
    sys.stdout.flush()
    world.told(None)
    os._exit(0)


def whole():
    try:
        import torch.distributed
        lacks, how = "" if torch.distributed.is_available() else "the image's torch has no torch.distributed", "torch"
    except Exception as error:
        lacks, how = "the image's python cannot import torch.distributed: %s" % str(error)[:200], "torch"
    if lacks:
        try:
            libraries()
            how = "nccl"
        except OSError as error:
            tell({"skipped": "%s; nor is there NCCL: %s" % (lacks, str(error)[:200])}, False)
    program = os.environ["CLOSEKNIT_PREFLIGHT"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(local), how], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for local in range(COUNTS[NODE])
    ]
    until, texts, error = time.time() + 2 * LIMIT_S, [], ""
    for process in processes:
        try:
            texts.append(process.communicate(timeout=max(1, until - time.time()))[0].decode("utf-8", "replace"))
        except subprocess.TimeoutExpired:
            process.kill()
            texts.append(process.communicate()[0].decode("utf-8", "replace"))
            error = "no end after %d s" % (2 * LIMIT_S)
        if process.returncode and not error:
            warned = [line[-300:] for line in texts[-1].splitlines() if "NCCL WARN" in line]
            error = "\n".join(warned[-1:] + [texts[-1].strip()[-300:]]) or "exit code %d" % process.returncode
    if error:
        tell({"error": error}, True)
    lines = [line for line in texts[0].splitlines() if line.startswith("RESULT ")]
    if not lines:
        tell({"error": "the first process told nothing"}, True)
    found = json.loads(lines[-1][len("RESULT "):])
    below = found["world"] is not None and found["world"] < FLOOR
    result = {"inside": found["nodes"][NODE], "below": below}
    result.update((name, found[name]) for name in ("world", "slow", "link", "ranks", "nccl"))
    result["slow"] = result["slow"][:MOST]
    tell(result, bool(found["slow"]) or below)


if len(sys.argv) > 1:
    rank(int(sys.argv[1]))
else:
    whole()
