"""Working ahead changes when things are computed, and nothing else."""

from __future__ import annotations

import threading

import pytest

from vapo._internal.ahead import ahead


def test_items_come_in_order_and_at_most_one_is_computed_before_it_is_wanted():
    made: list[int] = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    for number in ahead(items()):
        assert len(made) <= number + 2
    assert made == list(range(20))


def test_an_item_is_computed_while_the_one_before_it_is_in_use():
    begun = threading.Event()

    def items():
        yield 1
        begun.set()
        yield 2

    source = ahead(items())
    assert next(source) == 1
    assert begun.wait(60)
    assert list(source) == [2]


def test_an_error_comes_at_the_item_that_makes_it():
    def items():
        yield 1
        msg = "two"
        raise KeyError(msg)

    source = ahead(items())
    assert next(source) == 1
    with pytest.raises(KeyError, match="two"):
        next(source)


def test_whoever_stops_early_leaves_no_thread_behind():
    before = threading.active_count()
    source = ahead(range(10))
    next(source)
    source.close()
    assert threading.active_count() == before
