"""Words by which the header of a file names users, items, ratings, times, ids and titles.

A column has a role if its name is one of these words, whole: alone (``Sterne``) or, for users and
items, with a word for *number* or *id* (``Kundennummer``, ``id_cliente``, ``numéro du client``).
Names that merely resemble a word never count: a wrong user column would make the guarantee protect
something else. Case, accents, blanks and punctuation do not matter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

# first English up to the blank line, then a line each of German, French, Spanish, Portuguese,
# Italian, Dutch, Scandinavian, Polish, Czech, Russian, Turkish, Chinese, Japanese, Korean
USERS = """
    user customer client reviewer account member visitor listener reader viewer player buyer
    shopper subscriber person users username customers steamid

    nutzer benutzer kunde kunden käufer besteller mitglied anwender leser hörer teilnehmer konto
    utilisateur acheteur membre abonné lecteur adhérent
    usuario cliente comprador miembro socio
    usuário utilizador membro
    utente acquirente
    gebruiker klant klanten koper lid
    användare kund bruger bruker medlem køber
    użytkownik użytkownika klient klienta kupujący
    uživatel uživatele zákazník zákazníka
    пользователь пользователя клиент клиента покупатель покупателя
    kullanıcı müşteri üye
    用户 客户 会员 顾客 用戶 客戶 會員 顧客
    ユーザー ユーザ 会員 利用者
    사용자 고객 회원 유저
"""
ITEMS = """
    item movie product book song track artist article business game film video episode show app
    recipe restaurant hotel course podcast venue place items stockcode

    artikel produkt ware buch lied spiel
    produit livre chanson jeu ouvrage
    artículo producto libro película canción juego
    artigo produto livro filme
    articolo prodotto brano gioco
    boek
    vara vare bok bog
    towar towaru produktu artykuł książka
    zboží položka
    товар товара продукт фильм книга
    ürün
    商品 产品 物品 产品 電影 电影
    アイテム 製品
    상품 제품 아이템
"""
RATINGS = """
    score ratings stars overall plays playcount starrating reviewscore

    bewertung sterne note wertung punkte
    évaluation étoiles notation
    calificación puntuación valoración estrellas nota
    avaliação classificação estrelas pontuação
    valutazione voto stelle punteggio
    beoordeling waardering sterren cijfer
    betyg bedömning bedømmelse karakter stjärnor stjerner vurdering
    ocena gwiazdki
    hodnocení
    оценка рейтинг
    puan değerlendirme
    评分 评级 分数 星级 評分
    評価 評点 スコア
    평점 별점 점수
"""
TIMES = """
    timestamps time ts unixtime datetime date ratedat createdat unixreviewtime orderdate
    purchasedate eventtime reviewdate watchedat invoicedate

    datum zeit zeitpunkt zeitstempel bestelldatum kaufdatum
    horodatage dateachat datedachat datecommande datedecommande datedelacommande
    fecha hora fechacompra fechadecompra
    data datacompra datadacompra
    dataora
    tijd tijdstip
    tidspunkt tidpunkt
    czas
    čas
    дата время
    tarih zaman
    日期 时间 时间戳 時間
    日時 日付
    날짜 시간 일시
"""
TITLES = """
    itemtitle movietitle name itemname productname label titles

    titel bezeichnung artikelname produktname produktbezeichnung artikelbezeichnung
    titre nom libellé désignation intitulé
    título nombre descripción
    nome descrição
    titolo denominazione
    naam omschrijving
    namn navn
    tytuł nazwa
    název
    название наименование
    başlık ad ürünadı
    名称 标题 商品名 商品名称 名稱
    タイトル 名前
    제목 이름 상품명
"""
#: Nouns of columns that number orders or visits: a user has several of them.
ORDERS = """
    order invoice basket cart session transaction receipt visit

    bestellung bestell auftrag auftrags rechnung rechnungs warenkorb bon sitzung
    commande facture panier séance
    pedido factura cesta sesión
    fatura sessão
    ordine fattura carrello sessione
    bestelling factuur sessie
    beställning ordre faktura
    zamówienie zamówienia
    objednávka objednávky
    заказ заказа
    sipariş
    订单 訂單
    注文
    주문
"""
_NUMBERS = """
    id ids nr no num number code key
    nummer kennung
    numéro identifiant ref référence
    número identificador código
    codice identificativo
    numer identyfikator kod
    číslo
    номер код ид
    numarası kimliği
    编号 代码 編號 号
    番号 コード
    번호 코드 아이디
"""
#: Words with another meaning in English (`lid`: location id): they count where another column is
#: not English.
AMBIGUOUS = frozenset({"note", "nota", "data", "karakter", "lid"})
_LINKS = ("", "de", "du", "del", "des", "d", "do", "da", "della", "of")


_NEITHER = re.compile(r"[\W_]+")  # the letters and digits of `re` are those of `str.isalnum`


def letters_of(name: object) -> str:
    """Return the letters and digits of a text, without case, spaces and punctuation."""
    return _NEITHER.sub("", str(name).lower())


def normalize(name: object) -> str:
    """Return a column name without case, accents, spaces and punctuation."""
    plain = str(name).replace("°", "o")  # as in "N° client"; NFKD does the same for "º" and "№"
    return letters_of(unicodedata.normalize("NFKD", plain))


@lru_cache(maxsize=16)  # the tables above, some of which are needed for each of their nouns
def _words(text: str) -> tuple[str, ...]:
    return tuple(normalize(word) for word in text.split())


def _with_numbers(nouns: tuple[str, ...]) -> Iterator[str]:
    numbers = _words(_NUMBERS)
    for noun in nouns:
        for number in numbers:
            yield noun + number
            yield from (number + link + noun for link in _LINKS)


def names_of_ids(first: str, nouns: str) -> tuple[str, ...]:
    """Return the names of a column of ids: those in `first`, numbers of the nouns, the nouns."""
    plain = _words(nouns)
    return tuple(dict.fromkeys([*first.split(), *_with_numbers(plain), *plain]))


def names_of_values(first: str, nouns: str) -> tuple[str, ...]:
    """Return the names of a column of values, those in `first` before the others."""
    return tuple(dict.fromkeys([*first.split(), *_words(nouns)]))


def english(nouns: str) -> str:
    """Return the English part of a table."""
    return nouns.partition("\n\n")[0]
