"""Frames of ratings whose columns have names in seven languages."""

import numpy as np
import pandas as pd

HEADERS = {
    "German": ["Kundennummer", "Artikel", "Sterne", "Datum"],
    "French": ["numéro_client", "article", "étoiles", "date_achat"],
    "Spanish": ["cliente", "producto", "estrellas", "fecha"],
    "Italian": ["utente", "articolo", "stelle", "data"],
    "Dutch": ["klantnummer", "artikel", "sterren", "datum"],
    "Swedish": ["kundnummer", "artikel", "stjärnor", "datum"],
    "Polish": ["użytkownik", "produkt", "ocena", "data"],
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
