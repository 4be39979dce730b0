"""What the bench of the agent at rest (tests/hardware) reads in the agent's log is what the agent writes there."""

import os

from closeknit.agent import node_agent
from closeknit.runtime.logs import PlainFormatter
from hardware.agent_seen import first_published_s


def test_the_first_publication_is_found_in_the_agents_log() -> None:
    def line(words: str) -> str:
        record = node_agent._log.makeRecord(node_agent._log.name, 20, "", 0, "wrote %s", (words,), None)
        return PlainFormatter().format(record)

    assert first_published_s(os.getpid(), line("status, labels")) is None
    found = first_published_s(os.getpid(), f"{line('labels')}\n{line('NodeTopology, status, labels')}\n")
    assert found is not None and found > 0
