"""A search finds what only all parameters together have, and one lucky draw does not decide it."""

import math

import pytest

from research.search import Logarithmic, Rounds, around, draw, search, search_in

RANGES = {"step": Logarithmic(0.01, 100.0), "sweeps": (1, 2, 3, 4, 5), "cut": (2.0, 3.0)}


def test_candidates_lie_in_their_ranges_and_fill_them():
    found = draw(RANGES, 64)
    assert len(found) == 64
    assert found == draw(RANGES, 64), "the same in every run, so that a stopped run can be resumed"
    assert found != draw(RANGES, 64, seed=1)
    assert {one["sweeps"] for one in found} == {1, 2, 3, 4, 5}
    assert all(0.01 <= one["step"] <= 100 for one in found)
    assert sum(one["step"] < 1 for one in found) == 32, (
        "half of a logarithmic range is below its middle"
    )
    assert draw({}, 8) == [{}]


def test_parameters_are_chosen_together():
    """A narrow valley: from step 1, sweeps 1 no change of one parameter alone makes it better."""

    def score(candidate, at):
        return abs(math.log(candidate["step"]) - 2 * (candidate["sweeps"] - 3)) + 0.01 * abs(
            candidate["sweeps"] - 4
        )

    found = search(draw(RANGES, 64), score, Rounds())
    assert found.best["sweeps"] in (3, 4, 5)
    assert found.score < 0.5


@pytest.mark.parametrize("lucky", range(3))
def test_one_lucky_draw_does_not_decide(lucky):
    candidates = [{"name": "steady"}, {"name": "lucky"}, {"name": "broken"}]

    def score(candidate, at):
        if candidate["name"] == "broken":
            return math.nan
        if candidate["name"] == "lucky":
            return 0.0 if at == lucky else 1.0
        return 0.5

    found = search(candidates, score, Rounds(3, (2,), (1, 3)))
    assert found.best == {"name": "steady"}
    assert found.score == 0.5


def test_the_number_of_trainings_is_told():
    rounds = Rounds(8, (4, 2), (1, 3, 5))
    found = search(draw(RANGES, 8), lambda candidate, at: candidate["step"], rounds)
    assert found.trainings == rounds.trainings == 8 + 4 * 2 + 2 * 2


def test_a_second_search_goes_closer_and_is_never_worse():
    def score(candidate, at):
        return abs(math.log(candidate["step"]) - 1.234) + abs(candidate["sweeps"] - 4)

    plain = search_in(RANGES, score, Rounds(16, (4,), (1, 2)))
    refined = search_in(RANGES, score, rounds := Rounds(16, (4,), (1, 2), refined=16))
    assert refined.score < plain.score
    assert refined.trainings == rounds.trainings == plain.trainings + 17 * 1 + 3 * 1
    known = {"step": math.exp(1.234), "sweeps": 4, "cut": 2.0}
    found = search_in(RANGES, score, rounds, [known])
    assert found.best == known
    assert found.trainings == rounds.trainings + 2 * 2
    near = around(RANGES, {"step": 1.0, "sweeps": 1, "cut": 2.0}, 32)
    assert {one["sweeps"] for one in near} == {1, 2}
    assert all(10**-0.5 <= one["step"] <= 10**0.5 for one in near)
