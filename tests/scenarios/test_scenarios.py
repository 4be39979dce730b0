"""Every scenario file: a picture of a cluster, a job, and where it goes or why it does not."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeknit.api.names import PendingReason
from closeknit.lifecycle.patience import patient
from closeknit.placement.place import place
from closeknit.placement.placement import NoFit, Placement
from closeknit.placement.tables import Tables
from scenarios.clusters import drawn, wanted

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
PATIENT = "while patient"  # what is decided for a job that has not waited long enough yet
NOT_PLACEMENTS = {  # what launch or lifecycle say
    PendingReason.NOT_SUPPORTED,
    PendingReason.TEMPLATE_INVALID,
    PendingReason.NAME_CONFLICT,
    PendingReason.QUOTA_EXCEEDED,
    PendingReason.NAMESPACE_NOT_SERVED,
}


def written(decision: Placement | NoFit) -> dict[str, Any]:
    """A decision as scenario files write it."""
    if isinstance(decision, NoFit):
        return {"refused": str(decision.reason), "message": decision.message}
    shares = []
    for share in decision.shares:
        line = {
            "node": share.node,
            "gpus": " ".join(map(str, share.gpus)),
            "ranks": f"{share.ranks[0]}-{share.ranks[-1]}",
            "binding": str(share.binding),
        }
        line |= {"mig": share.mig_device} if share.mig_device else {}
        shares.append(line | ({"nics": " ".join(share.nics)} if share.nics else {}))
    return {
        "shares": shares,
        "levels": dict(decision.levels),
        "transport": str(decision.transport),
        "bandwidth": decision.predicted_bus_bandwidth_gb_s,
        "ideal": decision.ideal_bus_bandwidth_gb_s,
        "limitedBy": decision.limited_by,
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_ends_as_its_file_says(file: Path) -> None:
    scenario = yaml.safe_load(file.read_text())
    decision = place(drawn(scenario["cluster"]), wanted(**scenario["job"]), Tables())
    assert written(decision) == scenario["expect"]


@pytest.mark.parametrize("file", [file for file in FILES if PATIENT in file.read_text()], ids=lambda file: file.stem)
def test_a_patient_job_first_asks_as_its_file_says(file: Path) -> None:
    scenario = yaml.safe_load(file.read_text())
    cluster, tables = drawn(scenario["cluster"]), Tables()
    waiting = patient(wanted(**scenario["job"]), cluster, tables)
    assert ("nothing to wait for" if waiting is None else written(place(cluster, waiting, tables))) == scenario[PATIENT]


def test_every_refusal_of_placement_has_a_scenario() -> None:
    refused = {yaml.safe_load(file.read_text())["expect"].get("refused") for file in FILES}
    assert refused >= {str(reason) for reason in set(PendingReason) - NOT_PLACEMENTS}


def test_a_decision_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each process, unless the seed of their hashes is given."""
    tests = Path(__file__).parents[1]
    code = "from scenarios.test_scenarios import decisions; print(decisions())"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(tests)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] == f"{decisions()}\n"


def decisions() -> list[Placement | NoFit]:
    """Those of all scenarios, by the names of their files."""
    scenarios = [yaml.safe_load(file.read_text()) for file in FILES]
    return [place(drawn(scenario["cluster"]), wanted(**scenario["job"]), Tables()) for scenario in scenarios]
