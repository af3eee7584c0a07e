"""Progress where a person looks, and nowhere else; tables in notebooks in which nothing is
markup.
"""

import io
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import discreet
from discreet import progress
from discreet.data.splits import random_ratings
from discreet.errors import ConfigError
from discreet.progress import html_notes, html_table, in_notebook, progress_bar

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def ratings():
    return discreet.load_dataset("cinema", scale=0.02)


@pytest.fixture
def terminal(monkeypatch):
    """A stderr that says it is a terminal, and no patience."""
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=stream, modules=sys.modules))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    return stream


def test_a_pipe_gets_nothing_by_default(ratings, capsys):
    discreet.ALS(4, iterations=3).fit(ratings)
    discreet.DPMF(epsilon=1, rating_range=(0.5, 5)).fit(ratings)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_that_is_gone_afterwards(ratings, terminal):
    discreet.ALS(4, iterations=3).fit(ratings)
    assert "Training ALS" in terminal.getvalue()
    before = terminal.getvalue()
    discreet.ALS(4, iterations=3).fit(ratings, progress=False)
    assert terminal.getvalue() == before


def test_what_is_done_in_an_instant_has_no_bar(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    with progress_bar(None, "Training") as step:
        step(1, 2, "half")
    assert terminal.getvalue() == ""


def test_one_bar_at_a_time(terminal):
    with progress_bar(None, "Outer") as outer:
        outer(1, 2, "going")
        with progress_bar(None, "Inner") as inner:
            inner(1, 2, "going")
            assert inner is progress.no_progress
    with progress_bar(None, "Again") as again:
        assert again is not progress.no_progress
    assert "Inner" not in terminal.getvalue()


def test_an_error_takes_its_bar_with_it(terminal):
    def fail():
        with progress_bar(None, "Failing") as step:
            step(1, 2, "going")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with progress_bar(None, "Again") as again:
        assert again is not progress.no_progress


def test_lines_where_they_are_asked_for(ratings, capsys):
    for option in ({"verbose": True}, {"progress": True}):
        discreet.ALS(4, iterations=2).fit(ratings, **option)
        assert capsys.readouterr() == (
            "",
            "Training ALS: sweeps, 1 of 2\nTraining ALS: sweeps, 2 of 2\n",
        )


def test_a_function_is_called_as_it_always_was(ratings):
    told = []
    discreet.Popularity().fit(ratings, progress=lambda *what: told.append(what))
    assert told == [(1, 1, "counting")]


def test_other_things_are_refused(ratings):
    with pytest.raises(
        ConfigError, match="progress is 'yes', but must be True, False or a function"
    ):
        discreet.Bias().fit(ratings, progress="yes")


def test_a_real_pipe_and_a_real_notebook(monkeypatch):
    """In a kernel the bar is the browser's own, and it is emptied at the end."""
    code = (
        "import discreet; discreet.ALS(2, iterations=2).fit(discreet.load_dataset('cinema',"
        " scale=0.01))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "TERM": "x"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    shows: list[str] = []

    class Place:
        def update(self, html):
            shows.append(html)

    def display(html, display_id):
        shows.append(html)
        return Place()

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML = str
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    assert in_notebook()
    with progress_bar(None, HOSTILE) as step:
        step(1, 2, HOSTILE)
        step(2, 2, "done")
    assert "<progress value='1' max='2'>" in shows[0]
    assert shows[-1] == ""
    assert "<script>" not in "".join(shows)


def test_a_secret_number_of_trainings_shows_no_bars(ratings, terminal):
    """`tune` must not be watched: bars would tell how many runs there were."""
    discreet.tune(
        discreet.DPMF(epsilon=50, rating_range=(0.5, 5)), ratings, {"factors": [2, 3]}, runs=3
    )
    assert terminal.getvalue() == ""


def test_priced_scores_do_not_show_how_many_people_are_ranked(ratings, terminal):
    split = random_ratings(ratings, seed=0)
    model = discreet.Popularity().fit(split.train, progress=False)
    discreet.evaluate(model, split, "recall@20", epsilon=1.0)
    assert terminal.getvalue() == ""
    discreet.evaluate(model, split, "recall@20")
    assert "Evaluating" in terminal.getvalue()


def test_nothing_in_a_table_is_markup():
    made = html_table([HOSTILE], [[HOSTILE], ["& co"]]) + html_notes([HOSTILE])
    assert "<script>" not in made
    assert "&amp; co" in made
    assert html_notes([]) == ""


def test_models_show_themselves_in_notebooks(ratings):
    model = discreet.DPMF(epsilon=1, rating_range=(0.5, 5), random_state=31337)
    assert "Not trained yet" in model._repr_html_()
    html = model.fit(ratings)._repr_html_()
    assert "epsilon=1" in html
    assert "31337" not in html
    assert f"{ratings.n_items:,} items" in html
    assert "private" in html
    assert "Not private" in discreet.Popularity().fit(ratings)._repr_html_()
    hostile = discreet.ALS(4, iterations=1, dtype=HOSTILE)
    assert "<script>" not in hostile._repr_html_()


def test_scores_show_themselves_in_notebooks(ratings):
    split = random_ratings(ratings, seed=0)
    model = discreet.Popularity().fit(split.train)
    found = discreet.evaluate(model, split, ["recall@20"])
    html = found._repr_html_()
    assert f"<td>{found['recall@20']:.4f}</td>" in html
    assert "not covered by the model" in html
    priced = discreet.evaluate(model, split, ["recall@20"], epsilon=1.0)
    assert "released with noise" in priced._repr_html_()
    type(model).__name__ = HOSTILE
    try:
        assert "<script>" not in discreet.evaluate(model, split, ["recall@20"])._repr_html_()
    finally:
        type(model).__name__ = "Popularity"


def test_audits_show_themselves_in_notebooks():
    found = discreet.audit(discreet.DPMF, epsilon=1, levels=["transcript"], search=0, n_items=12)
    html = found._repr_html_()
    assert "<td>transcript</td>" in html
    assert "An audit is no proof" in html


def test_lists_of_hostile_titles_are_text():
    model = discreet.Popularity()
    data = discreet.Ratings.from_arrays([1, 1, 2], ["a", HOSTILE, "a"], [1.0, 1.0, 1.0])
    html = model.fit(data).recommend([], n=2)._repr_html_()
    assert "<script>" not in html
    assert np.count_nonzero([HOSTILE in str(title) for title in model.item_ids_]) == 1


def test_a_bar_says_that_code_is_being_compiled(terminal, capsys):
    from discreet._numba import njit

    @njit
    def doubled(x):
        return 2 * x

    @njit
    def halved(x):
        return x / 2

    with progress_bar(None, "Training") as step:
        assert doubled(3) == 6
        step(1, 2, "steps")
    assert "Training: compiling once for this processor" in terminal.getvalue()
    before = terminal.getvalue()
    assert halved(4) == 2.0  # no bar, so nobody is told
    with progress_bar(None, "Training"):
        assert doubled(4) == 8  # compiled already
    assert terminal.getvalue() == before
    with progress_bar(False, "Training"):
        assert halved(4.0) == 2.0
    assert terminal.getvalue() == before
    assert capsys.readouterr() == ("", "")
