"""The picture of the rooms is drawn from the contracts that hold, and shows every package."""

from pathlib import Path
from xml.etree import ElementTree as ET

from harness import code_map, structure

ROOT = Path(__file__).parents[3]
SOURCES = ("crds/src", "operator/src", "node-agent/src")


def test_the_picture_is_the_one_that_the_contracts_give() -> None:
    assert structure.text() == structure.FILE.read_text(), "run PYTHONPATH=tests python -m harness.structure"
    ET.fromstring(structure.text())  # noqa: S314 -- our own


def test_the_code_map_is_what_each_folder_says() -> None:
    page = code_map.PAGE.read_text()
    assert code_map.page(page) == page, "run make generate"


def test_every_package_is_a_room() -> None:
    packages = {path.name for source in SOURCES for path in (ROOT / source / "closeknit").iterdir() if path.is_dir()}
    assert packages - {"__pycache__"} == set(structure.now().rooms)


def test_a_jobs_way_enters_each_room_once() -> None:
    house = structure.now()
    assert sorted(stop for room in house.rooms.values() for stop in room.stops) == [1, 2, 3, 4, 5, 6, 7]
    assert all(len(room.stops) <= 1 for room in house.rooms.values())
