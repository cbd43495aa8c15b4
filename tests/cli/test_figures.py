"""What a replay measures."""

import pytest

from pgmem.cli.figures import Figures, Times, timed, times


def test_the_median_and_the_95th_percentile_are_in_milliseconds():
    assert times([number / 1000 for number in range(1, 101)]) == Times(median=50.5, p95=95.0)
    assert times([0.002]) == Times(median=2.0, p95=2.0)


def test_nothing_measured_is_none():
    assert times([]) == Times(None, None)


def test_what_raises_is_not_measured():
    seconds = []

    with pytest.raises(KeyError), timed(seconds):
        raise KeyError
    with timed(seconds):
        pass

    assert len(seconds) == 1


def test_the_reduction_is_the_share_that_was_not_sent():
    figures = Figures()
    assert figures.reduction == 0.0

    figures.add_context(sent_tokens=10, full_tokens=20)
    figures.add_context(sent_tokens=30, full_tokens=80)

    assert (figures.reduction, figures.largest_tokens, figures.contexts) == (0.6, 30, 2)
