"""Frames of ratings in seven languages, with user columns by names that no table knows."""

import numpy as np
import pandas as pd

HEADERS = {
    "German": ["Stammkunde", "Artikel", "Sterne", "Datum"],
    "French": ["foyer", "article", "étoiles", "date_achat"],
    "Spanish": ["titular", "producto", "estrellas", "fecha"],
    "Italian": ["tessera", "articolo", "stelle", "data"],
    "Dutch": ["pashouder", "artikel", "sterren", "datum"],
    "Swedish": ["innehavare", "artikel", "stjärnor", "datum"],
    "Polish": ["posiadacz", "produkt", "ocena", "data"],
}


def make_frame(names, n_rows=3000):
    rng = np.random.default_rng(0)
    values = (
        rng.integers(1000, 1400, n_rows),
        [f"A{item}" for item in rng.integers(0, 80, n_rows)],
        rng.integers(1, 6, n_rows),
        pd.date_range("2024-01-01", periods=90)
        .strftime("%Y-%m-%d")
        .to_numpy()[rng.integers(0, 90, n_rows)],
    )
    return pd.DataFrame(dict(zip(names, values, strict=True)))
