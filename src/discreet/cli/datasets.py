"""``discreet datasets``: list the data sets that can be loaded by name."""

from __future__ import annotations

from discreet.cli.app import command
from discreet.cli.output import Output

_STATE = {"embedded": "built in", "generated": "generated on demand"}


@command("discreet datasets")
def _datasets(out: Output) -> None:
    """List the data sets that can be loaded by name, with their licenses and availability."""
    from discreet.data.datasets import datasets
    from discreet.data.download import cache_folder

    known = [entry.to_dict() for entry in datasets()]
    cells = [
        [
            e["name"],
            f"{e['users']:,}",
            f"{e['items']:,}",
            f"{e['ratings']:,}",
            _state(e),
            e["about"],
        ]
        for e in known
    ]
    out.table(
        ["name", "users", "items", "ratings", "available", "description"],
        cells,
        flush_left=[0, 4, 5],
    )
    licenses: dict[str, list[str]] = {}
    for entry in known:
        licenses.setdefault(entry["license"], []).append(entry["name"])
    out.say("Licenses", style="bold")
    for license, names in licenses.items():
        out.say(f"  {', '.join(names)}: {license}")
    out.say()
    out.say("These files are downloaded on first use, or can be copied by hand:", style="bold")
    for entry in known:
        if entry["place"] is not None and not entry["present"]:
            out.say(f"  {entry['url']}  ->  {entry['place']}")
    out.say(
        "  Use --path for a file elsewhere: discreet train ml-1m --path ml-1m.zip --epsilon 1"
        " --out model/"
    )
    out.result({"command": "datasets", "cache": str(cache_folder()), "datasets": known})


def _state(entry: dict[str, object]) -> str:
    return _STATE.get(str(entry["kind"]), "yes" if entry["present"] else "no")
