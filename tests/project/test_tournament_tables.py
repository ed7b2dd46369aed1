"""The page on tournaments has the numbers of the stored results."""

import sys

from places import ROOT

sys.path.insert(0, str(ROOT / "docs"))

from building.tournament_tables import ACROSS, OF_A_TASK, PAGE, written


def test_every_number_of_its_tables_is_that_of_the_stored_results():
    page = PAGE.read_text()
    assert len(OF_A_TASK.findall(page)) == 5
    assert len(ACROSS.findall(page)) == 1
    assert written(page) == page
