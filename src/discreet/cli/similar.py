"""``discreet similar``: list the items most similar to a given one."""

from __future__ import annotations

from typing import Annotated

import typer

from discreet.cli.app import command
from discreet.cli.output import Output
from discreet.cli.recommend import show
from discreet.models.item_lookup import ItemLookup, rank_items


@command('discreet similar model/ "The Binary Colony" -n 5')
def similar(
    folder: Annotated[str, typer.Argument(help="Folder of a saved model.", metavar="MODEL")],
    item: Annotated[str, typer.Argument(help="An item: its id or its title.", metavar="ITEM")],
    out: Output,
    n: Annotated[int, typer.Option("-n", "--n", help="Number of items.", min=1, metavar="N")] = 10,
) -> None:
    """List the items most similar to a given one, by the cosine between item factors."""
    from discreet.models.storage.load_scorer import open_model

    model = open_model(folder, once=not out.json)
    items = ItemLookup.of_model(model)
    item_id = items.id_of(item)
    model.check_comparable()
    best, scores = model.scorer.similar(model.scorer.position(item_id), n)
    rows = rank_items(items, model.item_ids_[best], scores)
    title = items.title_of(item_id)
    out.say(f"Most similar to {item_id if title is None else title}:", style="bold")
    show(out, rows, "cosine")
    result = {"item_id": item_id, **({} if title is None else {"title": title})}
    out.result({"command": "similar", **result, "similar": rows})
