"""Files as users have them, from file to model with one command, or with one hint that is right."""

import random

import pytest


def rows(n_users, n_items, seed):
    """Users with five to fifteen different items each."""
    rng = random.Random(seed)
    for user in range(n_users):
        for item in rng.sample(range(n_items), rng.randint(5, 15)):
            yield rng, user, item


def german():
    yield "Kundennummer;Artikel;Sterne;Datum"
    for rng, user, item in rows(150, 40, 1):
        day = f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.2025"
        yield f"K{user:05d};A{item:04d};{rng.choice(['1', '2,5', '4', '5'])};{day}"


def french():
    yield "identifiant_client;produit;note;date_achat"
    for rng, user, item in rows(150, 40, 2):
        yield f"{user};P{item};{rng.choice(['1', '3,5', '5'])};2025-01-{rng.randint(10, 28)}"


def amazon():
    for rng, user, item in rows(150, 40, 3):
        yield f"A{user:013d},B{item:09d},{rng.randint(1, 5)}.0,{1400000000 + rng.randint(0, 9999)}"


def steam():
    for rng, user, item in rows(150, 40, 4):
        yield f'{151603000 + user},"Game {item}: The Return",purchase,1.0,0'
        if rng.random() < 0.5:
            yield f'{151603000 + user},"Game {item}: The Return",play,{rng.random() * 90:.1f},0'


def movielens():
    for rng, user, item in rows(150, 40, 5):
        yield f"{user + 1}::{item + 1}::{rng.randint(1, 5)}::97830{rng.randint(1000, 9999)}"


def orders():
    yield "order_id,customer_id,sku,quantity,unit_price,order_date"
    for order, (rng, user, item) in enumerate(rows(150, 40, 6)):
        yield f"{order // 3},{user},SKU-{item},{rng.randint(1, 4)},9.99,2025-03-05"


def retail():
    yield "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
    for order, (rng, user, item) in enumerate(rows(150, 40, 7)):
        who = "" if order % 20 == 7 else 17850 + user
        yield f'{order // 3},{item}A,"BAG, RED",1,12/{rng.randint(1, 28)}/2010 8:26,2.5,{who},UK'


def steam_hours():
    yield "steamid,appid,name,playtime_forever"
    for rng, user, item in rows(150, 40, 8):
        yield f'{76561197960265728 + user},{item},"Game {item}: Two",{rng.randint(0, 9000)}'


def amazon_reviews():
    yield "reviewerID,asin,reviewerName,reviewText,overall,unixReviewTime"
    for rng, user, item in rows(150, 40, 9):
        text = '"Good, ""really""; nice"'
        yield f'A{user},B{item:09d},"Doe, J. {user}",{text},{rng.randint(1, 5)}.0,14000{item:05d}'


def french_shop():
    yield "N° client;Référence produit;Note;Date d'achat"
    for rng, user, item in rows(150, 40, 10):
        yield f"{user};REF-{item};{rng.choice(['1', '3,5', '5'])};{rng.randint(10, 28)}/05/2025"


FILES = {
    "german.csv": (german, "user = 'Kundennummer', item = 'Artikel', rating = 'Sterne'"),
    "french.csv": (french, "user = 'identifiant_client', item = 'produit', rating = 'note'"),
    "amazon.csv": (amazon, "user = column 0, item = column 1, rating = column 2"),
    "ratings.dat": (movielens, "user = column 0, item = column 1, rating = column 2"),
    "orders.csv": (orders, "user = 'customer_id', item = 'sku', timestamp = 'order_date';"),
    "steam.csv": (steam_hours, "user = 'steamid', item = 'appid'; no rating column"),
    "reviews.csv": (amazon_reviews, "user = 'reviewerID', item = 'asin', rating = 'overall'"),
    "avis.csv": (french_shop, "user = 'N° client', item = 'Référence produit', rating = 'Note'"),
}


@pytest.mark.parametrize("name", FILES)
def test_one_command_from_file_to_model(run, tmp_path, name):
    lines, columns = FILES[name]
    file = tmp_path / name
    file.write_text("\n".join(lines()))
    done = run("train", file, "--epsilon", 5, "--out", tmp_path / "model")
    if "column 0" in columns:  # users are never guessed, and the hint is right
        assert done.code != 0
        assert "no header line, so that its first column was taken for users" in done.err
        assert "pass --user 0 if it identifies users" in done.err
        done = run("train", file, "--user", 0, "--epsilon", 5, "--out", tmp_path / "model")
    assert done.code == 0, done.err
    assert columns in done.out
    assert "Saved to" in done.out


def test_purchases_need_neither_caution_nor_setting(run, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text("\n".join(orders()))
    catalog = tmp_path / "catalog.csv"
    catalog.write_text("sku,name\n" + "\n".join(f"SKU-{i},Thing {i}" for i in range(40)))
    given = ("--epsilon", 5, "--items", catalog, "--out", tmp_path / "model")
    done = run("train", file, *given)
    assert done.code == 0, done.err
    assert "no rating column, so each row counts as liked" in done.out
    assert "WARNING" not in done.err
    assert "Cautions" not in done.out or "none" in done.out


def test_the_hint_for_a_log_without_ratings_is_right(run, tmp_path):
    file = tmp_path / "steam.csv"
    file.write_text("\n".join(steam()))
    done = run("train", file, "--epsilon", 5, "--out", tmp_path / "model")
    assert done.code != 0
    assert "pass --user 0 and --rating none if the rows are purchases or clicks" in done.err
    given = ("--epsilon", 5, "--out", tmp_path / "model")
    done = run("train", file, "--user", 0, "--rating", "none", *given)
    assert done.code == 0, done.err


@pytest.mark.parametrize("name", ["german.csv", "avis.csv"])
def test_the_hint_for_a_file_of_excel_is_right(run, tmp_path, name):
    lines, columns = FILES[name]
    file = tmp_path / name
    file.write_bytes("\r\n".join(lines()).replace("A0", "Ä0").encode("cp1252"))
    given = ("--epsilon", 5, "--out", tmp_path / "model")
    done = run("train", file, *given)
    assert done.code != 0
    assert "not UTF-8 text: pass --encoding cp1252 if Excel on Windows wrote the file" in done.err
    done = run("train", file, "--encoding", "cp1252", *given)
    assert done.code == 0, done.err
    assert columns in done.out


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_with_a_byte_order_mark_need_no_hint(run, tmp_path, encoding):
    file = tmp_path / "german.csv"
    file.write_bytes("\r\n".join(german()).replace("A0", "Ä0").encode(encoding))
    done = run("train", file, "--epsilon", 5, "--out", tmp_path / "model")
    assert done.code == 0, done.err


def test_the_hints_for_order_lines_are_right(run, tmp_path):
    file = tmp_path / "retail.csv"
    file.write_text("\n".join(retail()))
    given = ("--epsilon", 5, "--out", tmp_path / "model")
    done = run("train", file, *given)
    assert "pass --dates day-first or --dates month-first" in done.err
    assert "did you mean" not in done.err
    given = (*given, "--dates", "month-first")
    done = run("train", file, *given)
    assert "the user id is missing: fill it in, or drop such lines with --missing drop" in done.err
    assert run("train", file, *given, "--user", "InvoiceNo").code == 2
    assert run("train", file, *given, "--missing", "drop").code == 0


def test_columns_of_the_catalog_can_be_named(run, tmp_path):
    file = tmp_path / "german.csv"
    file.write_text("\n".join(german()))
    catalog = tmp_path / "things.csv"
    catalog.write_text("Schlüssel;Text;Art\n" + "\n".join(f"A{i:04d};T{i};x" for i in range(40)))
    given = ("--epsilon", 5, "--rating-range", "1,5", "--items", catalog, "--out", tmp_path / "m")
    done = run("train", file, *given)
    assert done.code != 0
    assert "--items-id COLUMN --items-title COLUMN" in done.err
    names = ("--items-id", "Schlüssel", "--items-title", "Text")
    assert run("train", file, *given, *names).code == 0
    done = run("recommend", tmp_path / "m", "--history", "T7", "--why", "-n", 2)
    assert done.code == 0, done.err
    assert "because of" in done.out


def test_a_history_is_no_reason_where_it_changes_nothing(run, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text("\n".join(orders()))
    given = ("--not-private", "--model", "popularity", "--out", tmp_path / "m")
    assert run("train", file, *given).code == 0
    done = run("recommend", tmp_path / "m", "--history", "sku-7", "--why", "-n", 2)
    assert done.code == 0, done.err
    assert done.out.count("its popularity") == 2
