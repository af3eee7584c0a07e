"""A first private recommender, from ratings to recommendations: train, read the promise, compare
budgets, export, look.

Run it with ``python examples/private_recommender.py``. It takes about ten seconds, needs nothing
but discreet itself, and writes to the folder given as its argument (``my-model`` by default), with
a page about the model next to it.
"""

import sys
from pathlib import Path

import discreet
from discreet.data.splits import random_ratings


def main(folder: Path = Path("my-model"), scale: float = 1.0) -> None:
    # 1. Ratings. Yours: discreet.Ratings.read("ratings.csv", items="films.csv"). A public catalog
    # keeps the list of
    #    items from depending on the ratings.
    ratings = discreet.load_dataset("cinema", scale=scale)
    print(ratings)

    # 2. Train. ε bounds how much can be learned about any one user: smaller is more private, and
    # noisier. The range of the ratings is public; if you leave it out, it is read from the data,
    # and the statement says so.
    #    goal="rating" predicts stars instead of ranking films.
    private = {"delta": 1e-6, "rating_range": (0.5, 5.0)}
    model = discreet.DPMF(epsilon=2.0, **private).fit(ratings)

    # 3. Read the promise. It is also in the saved folder, with the ledger of everything that was
    # released.
    print(f"\n{model.summary_}\n\n{model.privacy_}\n")

    # 4. Recommend. A person's vector is computed from their own history, for them alone, and kept
    # nowhere.
    titles = dict(zip(model.item_ids_.tolist(), model.titles_.tolist(), strict=True))
    items, scores = model.recommend(["the-binary-colony", "signal-from-quillon", "colony-21"], n=5)
    for item, score in zip(items.tolist(), scores.tolist(), strict=True):
        print(f"{score:6.3f}  {titles[item]}")

    # 5. Compare budgets on ratings that were held out. Every training is a release of its own: do
    # this on public or
    #    invented data, as here, and train once on people's.
    split = random_ratings(ratings, (0.9, 0.1), seed=0)
    rivals = {
        "ALS, not private": discreet.ALS(16, goal="ranking"),
        "most popular": discreet.Popularity(),
    }
    for epsilon in (0.5, 2.0, 8.0):
        rivals[f"DPMF, ε = {epsilon:g}"] = discreet.DPMF(epsilon=epsilon, **private)
    print("\nrecall@20 on held-out ratings")
    for name, rival in rivals.items():
        score = discreet.evaluate(rival.fit(split.train), split, "recall@20", slices=None).values[
            "recall@20"
        ]
        print(f"{name:>18}  {score:.3f}")

    # 6. Export: plain files (safetensors and JSON, no pickle), read back in one line, here or on
    # another machine.
    model.save(folder)
    again = discreet.load(folder)
    assert again.recommend(["colony-21"])[0].tolist() == model.recommend(["colony-21"])[0].tolist()

    # 7. A page about the model, for those who would rather look than read: one HTML file that needs
    # no network.
    page = folder.with_name(f"{folder.name}.html")
    discreet.write_report(model, page)
    print(f"\nsaved to {folder}: {', '.join(sorted(file.name for file in folder.iterdir()))}")
    print(f"open {page} in a browser")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
