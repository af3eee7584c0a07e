"""``discreet datasets``: what can be loaded by name, and where its file goes."""

from __future__ import annotations

from discreet.cli.app import command
from discreet.cli.output import Output

_STATE = {"embedded": "built in", "generated": "made when asked for"}


@command("discreet datasets")
def _datasets(out: Output) -> None:
    """List the data sets that can be loaded by name, with their licenses and whether they are
    installed.
    """
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
    out.table(["name", "users", "items", "ratings", "here?", "what"], cells, flush_left=[0, 4, 5])
    licenses: dict[str, list[str]] = {}
    for entry in known:
        licenses.setdefault(entry["license"], []).append(entry["name"])
    out.say("Licenses", style="bold")
    for license, names in licenses.items():
        out.say(f"  {', '.join(names)}: {license}")
    out.say()
    out.say("Files of others are downloaded on first use, or put there by hand:", style="bold")
    for entry in known:
        if entry["place"] is not None and not entry["present"]:
            out.say(f"  {entry['url']}  ->  {entry['place']}")
    out.say(
        "  A file elsewhere is named with --path: discreet train ml-1m --path ml-1m.zip --epsilon 1"
        " --out model/"
    )
    out.result({"command": "datasets", "cache": str(cache_folder()), "datasets": known})


def _state(entry: dict[str, object]) -> str:
    return _STATE.get(str(entry["kind"]), "yes" if entry["present"] else "no")
