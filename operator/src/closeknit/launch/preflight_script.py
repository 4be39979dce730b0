"""The program of a preflight, as text: it runs under the image's own python, of whatever version from 3.6 on.

One process for each GPU, through torch.distributed: NCCL on GPUs, gloo on CPUs. Measured are an all-reduce inside each
node, one over all ranks, and, where that is slow, one between neighbours, so that a slow node or link has a name. The
result is one JSON object, all its bandwidths bus bandwidths in GB/s.
"""

SCRIPT = r'''
import json, os, subprocess, sys, time

LOG = os.environ.get("CLOSEKNIT_PREFLIGHT_RESULT", "/dev/termination-log")
COUNTS = [int(count) for count in os.environ["CLOSEKNIT_PREFLIGHT_RANKS"].split(",")]
NODE = int(os.environ["CLOSEKNIT_PREFLIGHT_NODE"])
FLOOR = float(os.environ.get("CLOSEKNIT_PREFLIGHT_FLOOR") or 0)  # GB/s over all ranks
LIMIT_S = 180
SLOW = 0.7  # of the median: nodes are alike, so that noise is far smaller


def tell(result, failed):
    with open(LOG, "w") as log:
        log.write(json.dumps(result)[:4000])
    print(json.dumps(result), flush=True)
    sys.exit(1 if failed and os.environ.get("CLOSEKNIT_PREFLIGHT_ENFORCE") == "1" else 0)


def rank(local):
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method="tcp://" + os.environ["CLOSEKNIT_PREFLIGHT_MEET"],
        rank=sum(COUNTS[:NODE]) + local, world_size=sum(COUNTS), timeout=timedelta(seconds=LIMIT_S))
    data = torch.ones((64 if cuda else 1) << 20, dtype=torch.float32, device=device)

    def measured(group, ranks, rounds=5):
        """None where this process is not in the group."""
        if dist.get_rank() not in ranks or len(ranks) < 2:
            return None
        for turn in range(rounds + 2):
            if turn == 2:
                if cuda:
                    torch.cuda.synchronize()
                dist.barrier(group=group)
                began = time.perf_counter()
            dist.all_reduce(data, group=group)
            data.fill_(1)
        if cuda:
            torch.cuda.synchronize()
        took = (time.perf_counter() - began) / rounds
        return 2 * (len(ranks) - 1) / len(ranks) * data.numel() * 4 / took / 1e9

    everyone = list(range(sum(COUNTS)))
    nodes = [everyone[sum(COUNTS[:node]):sum(COUNTS[:node + 1])] for node in range(len(COUNTS))]
    groups = [dist.new_group(ranks) for ranks in nodes]  # all ranks make all groups, in one order
    inside = measured(groups[NODE], nodes[NODE])
    told = [None] * len(everyone)
    dist.all_gather_object(told, inside)
    world = torch.tensor([measured(dist.group.WORLD, everyone) or 0.0], device=device)
    dist.broadcast(world, 0)
    world = float(world.item()) or None
    pairs = []
    if world is not None and world < FLOOR:
        for node in range(len(COUNTS) - 1):
            two = [nodes[node][0], nodes[node + 1][0]]
            pairs.append(measured(dist.new_group(two), two))
        found = [None] * len(everyone)
        dist.all_gather_object(found, pairs)
        pairs = [max((each[at] or 0.0 for each in found), default=0.0) for at in range(len(COUNTS) - 1)]
    if local == 0:
        print("RESULT " + json.dumps({"nodes": [told[ranks[0]] for ranks in nodes], "world": world, "pairs": pairs}))
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def whole():
    try:
        import torch.distributed
    except Exception as error:
        tell({"skipped": "the image's python cannot import torch.distributed: %s" % str(error)[:200]}, False)
    if not torch.distributed.is_available():
        tell({"skipped": "the image's torch is built without torch.distributed"}, False)
    program = os.environ["CLOSEKNIT_PREFLIGHT"]
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(local)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
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
            error = texts[-1].strip()[-600:] or "exit code %d" % process.returncode
    if error:
        tell({"error": error}, True)
    lines = [line for line in texts[0].splitlines() if line.startswith("RESULT ")]
    if not lines:
        tell({"error": "the first process told nothing"}, True)
    found = json.loads(lines[-1][len("RESULT "):])
    inside = [each for each in found["nodes"] if each]
    median = sorted(inside)[len(inside) // 2] if inside else 0
    slow = [node for node, each in enumerate(found["nodes"]) if each and each < SLOW * median]
    below = found["world"] is not None and found["world"] < FLOOR
    link = []
    if below and found["pairs"]:
        at = found["pairs"].index(min(found["pairs"]))
        link = [at, at + 1]
    result = {"inside": found["nodes"][NODE], "world": found["world"], "slow": slow, "link": link}
    tell(result, bool(slow) or below)


if len(sys.argv) > 1:
    rank(int(sys.argv[1]))
else:
    whole()
'''
