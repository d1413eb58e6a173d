"""The defects of ``tests.put_back`` can still be put back: the text that each replaces is where it says, once."""

import pytest

from tests.put_back import DEFECTS, ROOT


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_has_one_place(name):
    defect = DEFECTS[name]
    assert (ROOT / defect.file).read_text().count(defect.right) == 1
