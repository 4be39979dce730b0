"""What one real machine said of itself in the same minute: the agent's dump, nvidia-smi's words, NCCL's own graph.

A recording is a set of files with one stem: `STEM.json` is the agent's dump, `STEM.nvidia-smi-topo-m.txt`,
`STEM.nvidia-smi-nvlink-s.txt` and `STEM.nvidia-smi-q.xml` are what nvidia-smi printed, `STEM.nccl-topo.xml` is the
graph that NCCL made (NCCL_TOPO_DUMP_FILE). Any of the last four may be missing.
"""

import re
from dataclasses import dataclass
from pathlib import Path

UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
SERIALS = re.compile(r"<(serial|board_part_number|chassis_serial_number|host_id|guid|pdi)>[^<]*</\1>")
HOST_HASH = re.compile(r'host_hash="0x[0-9a-f]+"')


@dataclass(frozen=True, slots=True)
class Recording:
    """The texts of one machine; None where one was not recorded."""

    dump: bytes
    topo_m: str | None = None
    nvlink_s: str | None = None
    query_xml: str | None = None
    nccl_xml: str | None = None


SUFFIXES = {
    "topo_m": ".nvidia-smi-topo-m.txt",
    "nvlink_s": ".nvidia-smi-nvlink-s.txt",
    "query_xml": ".nvidia-smi-q.xml",
    "nccl_xml": ".nccl-topo.xml",
}


def read(folder: Path, stem: str) -> Recording:
    """The recording with this stem. Raises OSError without its dump."""
    files = {name: folder / f"{stem}{suffix}" for name, suffix in SUFFIXES.items()}
    texts = {name: file.read_text() for name, file in files.items() if file.exists()}
    return Recording(dump=(folder / f"{stem}.json").read_bytes(), **texts)


def write(folder: Path, stem: str, recording: Recording) -> None:
    """Writes the files that `read` reads."""
    (folder / f"{stem}.json").write_bytes(recording.dump)
    for name, suffix in SUFFIXES.items():
        text = getattr(recording, name)
        if text is not None:
            (folder / f"{stem}{suffix}").write_text(text)


def anonymised(recording: Recording) -> Recording:
    """The same machine with made-up uuids, equal ones equal in all its texts, and without serial numbers."""
    texts = [recording.dump.decode(), *(getattr(recording, name) or "" for name in SUFFIXES)]
    found = dict.fromkeys(match[0] for text in texts for match in UUID.finditer(text))  # GPUs first, by index
    made_up = {uuid: f"{uuid[:3]}-00000000-0000-4000-8000-{number:012x}" for number, uuid in enumerate(found)}

    def replaced(text: str) -> str:
        text = UUID.sub(lambda match: made_up[match[0]], text)
        text = SERIALS.sub(lambda match: f"<{match[1]}>replaced</{match[1]}>", text)
        return HOST_HASH.sub('host_hash="0x0"', text)

    others = {name: getattr(recording, name) for name in SUFFIXES}
    return Recording(
        dump=replaced(recording.dump.decode()).encode(),
        **{name: text and replaced(text) for name, text in others.items()},
    )
