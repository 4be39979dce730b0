"""Run by an interpreter that has Horovod: which ranks its launcher gives to the hosts of a file. JSON in, JSON out."""

import json
import sys

from horovod.runner.common.util.hosts import get_host_assignments, parse_host_files, parse_hosts

question = json.load(sys.stdin)
hosts = parse_hosts(parse_host_files(question["hostfile"]))
found: dict[str, list[int]] = {}
for slot in get_host_assignments(hosts, question["processes"]):
    found.setdefault(slot.hostname, []).append(slot.rank)
json.dump([{"host": host, "ranks": ranks} for host, ranks in found.items()], sys.stdout)
