"""The table of blame is closed, and its page says what it says."""

from closeknit.cluster.symptoms import Symptom
from closeknit.lifecycle.blame import TABLE
from scenarios.blame import PAGE, page


def test_every_symptom_has_its_row() -> None:
    assert set(TABLE) == set(Symptom)


def test_the_page_is_generated() -> None:
    assert PAGE.read_text() == page(), "run: make generate"
