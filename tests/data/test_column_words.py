"""Names of columns in many languages: exact words only, and no guess about users."""

import logging

import numpy as np
import pandas as pd
import pytest

from discreet import Ratings
from discreet.data.columns import find_columns
from discreet.errors import DataError

HEADERS = {
    "german": ("Kundennummer", "Artikel", "Sterne", "Datum"),
    "german, ids": ("Kunden-Nr.", "Artikel-Nr.", "Bewertung", "Bestelldatum"),
    "french": ("identifiant_client", "produit", "note", "date"),
    "french, accents": ("Numéro du client", "Référence produit", "Évaluation", "Horodatage"),
    "spanish": ("id_usuario", "artículo", "calificación", "fecha"),
    "portuguese": ("código do cliente", "produto", "avaliação", "data"),
    "italian": ("codice_cliente", "articolo", "voto", "data"),
    "dutch": ("klantnummer", "artikelnummer", "beoordeling", "tijdstip"),
    "swedish": ("kundnummer", "artikelnummer", "betyg", "tidpunkt"),
    "polish": ("id_klienta", "produkt", "ocena", "data"),
    "czech": ("číslo zákazníka", "položka", "hodnocení", "čas"),
    "russian": ("ID пользователя", "товар", "оценка", "дата"),
    "turkish": ("müşteri numarası", "ürün", "puan", "tarih"),
    "chinese": ("用户编号", "商品", "评分", "时间"),
    "japanese": ("ユーザーID", "アイテム", "評価", "日時"),
    "korean": ("사용자 번호", "상품", "평점", "날짜"),
    "amazon": ("reviewerID", "asin", "overall", "unixReviewTime"),
}


@pytest.mark.parametrize("language", HEADERS)
def test_headers(language):
    names = HEADERS[language]
    found = find_columns(names, {}, "file")
    assert found == {"user": 0, "item": 1, "rating": 2, "timestamp": 3}


@pytest.mark.parametrize(
    "names",
    [
        ["Kundennummern-alt", "Artikel", "Sterne"],  # resembles a word and is none
        ["customer_age", "item", "rating"],
        ["usr", "item", "rating"],
        ["clientele", "item", "rating"],
    ],
)
def test_resembling_a_word_makes_no_user_column(names):
    with pytest.raises(DataError, match="no column recognizable as the user"):
        find_columns(names, {}, "file")


def test_two_user_columns_in_two_languages_have_to_be_chosen_from():
    with pytest.raises(DataError, match="several columns that may be the user"):
        find_columns(["Kunde", "user_id", "Artikel"], {}, "file")


def test_english_words_with_another_meaning_need_a_foreign_column():
    # "note" and "data" of an English file are text
    assert find_columns(["user_id", "item_id", "note", "data"], {}, "file") == {
        "user": 0,
        "item": 1,
    }


def test_columns_are_reported_before_anything_is_read(caplog):
    with caplog.at_level(logging.INFO, "discreet"):
        find_columns(HEADERS["german"][:2], {}, "shop.csv")
    assert caplog.messages == [
        "shop.csv: user = 'Kundennummer', item = 'Artikel'; no rating column, so each row counts"
        " as liked"
    ]
    assert caplog.records[0].notice


GERMAN = (
    "Kunde;Artikel;Sterne;Datum\n7;1;3,5;31.05.2024\n7;2;4;1.6.2024 12:30\n8;1;2.5;2024-06-01\n"
)


def test_decimal_commas_and_dates_with_points(tmp_path):
    file = tmp_path / "shop.csv"
    file.write_text(GERMAN)
    ratings = Ratings.read(file)
    assert ratings.values.tolist() == [3.5, 4, 2.5]
    first = np.datetime64("2024-05-31", "s").astype(int)
    assert (ratings.timestamps - first).tolist() == [0, 86400 + 45000, 86400]


def test_a_comma_changes_no_other_rating(tmp_path):
    rng = np.random.default_rng(3)
    texts = [f"{x:.9f}" for x in rng.normal(size=500)]
    file = tmp_path / "r.csv"
    plain = "".join(f"{row};{row % 50};{text}\n" for row, text in enumerate(texts))
    file.write_text("user;item;rating\n" + plain)
    before = Ratings.read(file)
    file.write_text("user;item;rating\n" + plain + "900;1;3,5\n")
    after = Ratings.read(file)
    assert after.values[:-1].tobytes() == before.values.tobytes()
    assert after.values[-1] == 3.5


def test_blocks_read_the_same(tmp_path):
    from discreet.engines.blocks import BlockRatings

    file = tmp_path / "shop.csv"
    file.write_text(GERMAN + "9;2;;2024-06-01\n")
    with pytest.raises(DataError, match="without a user, an item or a finite rating"):
        BlockRatings.write(file, tmp_path / "a", blocks=1)
    made = BlockRatings.write(file, tmp_path / "b", blocks=1, missing="drop")
    assert made.rating_range() == (2.5, 4.0)


def test_rows_without_rating_can_be_dropped(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("user,item,rating\n1,1,4\n1,2,\n2,1,N/A\n2,3,5\n")
    with pytest.raises(DataError, match="the rating is missing"):
        Ratings.read(file)
    assert Ratings.read(file, missing="drop").values.tolist() == [4, 5]
    frame = pd.DataFrame({"user": [1, 1, 2], "item": [1, 2, 3], "rating": [4, np.nan, 5]})
    assert Ratings.from_frame(frame, missing="drop").values.tolist() == [4, 5]
    frame.to_parquet(tmp_path / "r.parquet")
    assert Ratings.read(tmp_path / "r.parquet", missing="drop").values.tolist() == [4, 5]
    texts = frame.assign(rating=["4", None, "5"])
    assert Ratings.from_frame(texts, missing="drop").values.tolist() == [4, 5]


def test_the_catalog_may_name_its_ids_as_the_ratings_do(tmp_path):
    from discreet.data.catalog import read_catalog

    catalog = tmp_path / "things.csv"
    catalog.write_text("Ding;Bez\nA1;Lampe\nA2;Stuhl\n")
    file = tmp_path / "r.csv"
    file.write_text("Kunde;Ding;Sterne\n1;A1;4\n")
    ratings = Ratings.read(file, item="Ding", items=catalog)
    assert ratings.item_ids.tolist() == ["A1", "A2"]
    named = read_catalog(catalog, item="Ding", title="Bez")
    assert named.titles.tolist() == ["Lampe", "Stuhl"]
    with pytest.raises(DataError, match=r"no column 'Nr': its columns are 'Ding', 'Bez'"):
        read_catalog(catalog, item="Nr")
    with pytest.raises(DataError, match=r"read_catalog\(path, item=\.\.\.\)"):
        read_catalog(_parquet(tmp_path))


def _parquet(folder):
    file = folder / "c.parquet"
    pd.DataFrame({"Ding": ["A1"], "Bez": ["Lampe"]}).to_parquet(file)
    return file
