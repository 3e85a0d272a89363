import pytest
import words


@pytest.mark.heap_budget("100kB", leaked="2kB")
def test_a_thousand_lines():
    assert words.count(1000) == 2000


def test_one_line():
    assert words.count(1) == 2
