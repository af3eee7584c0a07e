"""What `recommend` and `similar_items` give back: a pair of arrays, a table to read, a frame."""

import numpy as np
import pytest

import discreet
from discreet.models.recommendations import Recommendations

IDS = np.array(["a", "b"], object)
SCORES = np.array([0.5, 0.25], np.float32)
TITLES = np.array(["<Alpha>", "Beta & Co"], object)


def test_it_unpacks_to_ids_and_scores():
    found = Recommendations(IDS, SCORES, TITLES)
    ids, scores = found
    assert ids is IDS
    assert scores is SCORES
    assert found[0] is found.ids
    assert list(found.rows()) == [("a", "<Alpha>", 0.5), ("b", "Beta & Co", 0.25)]
    assert list(Recommendations(IDS, SCORES).rows()) == [("a", None, 0.5), ("b", None, 0.25)]


def test_it_prints_as_a_table():
    assert str(Recommendations(IDS, SCORES, TITLES)).splitlines() == [
        "   item  title      score",
        "1  a     <Alpha>    0.5",
        "2  b     Beta & Co  0.25",
    ]
    assert str(Recommendations(IDS, SCORES)).splitlines()[1] == "1  a     0.5"
    assert str(Recommendations(IDS[:0], SCORES[:0])) == "no recommendations"
    explained = Recommendations(IDS[:0], SCORES[:0])
    explained.note = "no contributions: the history has no items"
    assert str(explained) == "no contributions: the history has no items"
    many = Recommendations(np.arange(100), np.zeros(100, np.float32))
    assert str(many).splitlines()[-1] == "… and 70 more"
    assert len(str(many).splitlines()) == 32


def test_notebooks_show_titles_as_text():
    html = Recommendations(IDS, SCORES, TITLES)._repr_html_()
    assert "&lt;Alpha&gt;" in html
    assert "Beta &amp; Co" in html
    assert "<th>title</th>" not in Recommendations(IDS, SCORES)._repr_html_()


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_it_turns_into_a_frame(backend):
    frame = Recommendations(IDS, SCORES, TITLES).to_frame(backend)
    names = frame.column_names if backend == "pyarrow" else list(frame.columns)
    assert names == ["item_id", "title", "score"]
    assert len(frame) == 2
    bare = Recommendations(IDS, SCORES).to_frame(backend)
    assert "title" not in (bare.column_names if backend == "pyarrow" else bare.columns)


def test_models_give_it_with_titles():
    ratings = discreet.load_dataset("cinema", scale=0.02)
    model = discreet.ALS(4, iterations=2, goal="ranking").fit(ratings)
    found = model.recommend(["the-binary-colony"], n=3)
    assert isinstance(found, Recommendations)
    assert len(found.titles) == 3
    titles = dict(zip(model.item_ids_.tolist(), model.titles_.tolist(), strict=True))
    assert found.titles.tolist() == [titles[item] for item in found.ids.tolist()]
    similar = model.similar_items("the-binary-colony", n=4)
    assert isinstance(similar, Recommendations)
    assert len(similar.titles) == 4
