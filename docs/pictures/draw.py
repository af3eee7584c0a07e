"""Draw the diagrams of the documentation: python docs/pictures/draw.py writes the SVG files next to
itself.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

INK, SOFT, PAPER, PRIVATE, PUBLIC = "#1b2a2f", "#5b6f76", "#ffffff", "#fbe3d6", "#d6efe8"


class Picture:
    """Boxes, arrows and text on a grid of pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = width, height
        self.title = title
        self.parts: list[str] = []

    def box(
        self, x: int, y: int, w: int, h: int, *lines: str, fill: str = PAPER, bold: bool = True
    ) -> None:
        """Add a box with its first line in bold."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{fill}" stroke="{INK}"'
            ' stroke-width="1.5"/>'
        )
        top = y + h / 2 - 9 * (len(lines) - 1) + 5
        for at, line in enumerate(lines):
            self.word(x + w / 2, top + 18 * at, line, bold=bold and at == 0)

    def word(
        self, x: float, y: float, text: str, *, bold: bool = False, soft: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        color = SOFT if soft else INK
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="middle"'
            f' fill="{color}"{weight}>{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[int, int]) -> None:
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.8"'
            ' marker-end="url(#tip)"/>'
        )

    def wall(self, x: int, y: int, height: int, gap: tuple[int, int]) -> None:
        """Add a border with one gap in it."""
        for begin, end in ((y, gap[0]), (gap[1], y + height)):
            self.parts.append(
                f'<line x1="{x}" y1="{begin}" x2="{x}" y2="{end}" stroke="{INK}" stroke-width="7"/>'
            )

    def save(self, path: Path) -> None:
        width, height = self.size
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" role="img" font-family="system-ui, sans-serif"'
            f' font-size="14"><title>{escape(self.title)}</title><defs><marker id="tip" viewBox="0'
            ' 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8"'
            ' orient="auto-start-reverse"><path d="M0 0L10 5L0 10z"'
            f' fill="{INK}"/></marker></defs><rect width="{width}" height="{height}" rx="12"'
            f' fill="#f5f8f8"/>{"".join(self.parts)}</svg>\n',
            encoding="utf-8",
        )


def release_point() -> Picture:
    picture = Picture(
        820,
        330,
        "Sums over users leave through Session.release, which records the cost and adds noise",
    )
    picture.word(190, 32, "sealed", soft=True)
    picture.word(645, 32, "released", soft=True)
    for at in range(3):
        picture.box(30, 55 + 82 * at, 150, 62, f"user {at + 1}", "own ratings", fill=PRIVATE)
        picture.arrow((180, 86 + 82 * at), (225, 86 + 82 * at), (250, 160))
    picture.box(250, 130, 130, 66, "statistic", "bounded sum", fill=PRIVATE)
    picture.arrow((380, 163), (418, 163))
    picture.wall(485, 20, 216, (108, 218))
    picture.box(418, 112, 134, 102, "Session.release", "1 record the cost", "2 sum", "3 add noise")
    picture.arrow((552, 163), (600, 163))
    picture.box(600, 130, 110, 66, "noisy sum", fill=PUBLIC)
    picture.arrow((655, 196), (655, 236))
    picture.box(600, 236, 110, 56, "model", fill=PUBLIC)
    picture.box(433, 252, 104, 48, "ledger")
    picture.arrow((455, 214), (455, 250))
    picture.box(590, 55, 200, 46, "plan: noise multipliers", fill=PUBLIC, bold=False)
    picture.arrow((590, 78), (515, 78), (515, 110))
    return picture


def joint_privacy() -> Picture:
    picture = Picture(
        820, 250, "Item vectors are released; a user's vector is computed where the history is"
    )
    picture.box(30, 85, 170, 80, "item vectors V", "(ε, δ)-private,", "released", fill=PUBLIC)
    for at, (name, what) in enumerate((("Ada", "science fiction"), ("Bo", "comedies"))):
        y = 30 + 110 * at
        picture.arrow((200, 125), (240, 125), (240, y + 40), (278, y + 40))
        lines = (f"{name}'s device", f"history: {what}", f"{name}'s own vector u")
        picture.box(280, y, 180, 80, *lines, fill=PRIVATE)
        picture.arrow((460, y + 40), (538, y + 40))
        picture.box(540, y, 250, 80, f"{name}'s list", "u · V, for", f"{name} only", fill=PRIVATE)
    return picture


def ranking_routes() -> Picture:
    picture = Picture(
        820, 250, "DPMF for ranking: released counts decide between three routes to lists"
    )
    picture.box(20, 95, 140, 62, "item counts,", "number of users", fill=PUBLIC)
    routes = (
        ("item pairs", "popular items dominate,", "and their pairs exceed the noise"),
        ("communities", "long tail; refuted by held-out", "users, the rest counts again"),
        ("popularity", "nothing else would", "exceed the noise"),
    )
    for at, (name, *why) in enumerate(routes):
        y = 15 + 78 * at
        picture.arrow((160, 126), (200, 126), (200, y + 32), (238, y + 32))
        picture.box(240, y, 270, 64, name, *why, fill=PUBLIC)
        picture.arrow((510, y + 32), (560, y + 32), (560, 126), (598, 126))
    picture.box(600, 85, 195, 82, "list", "score × own profile", "in public features", fill=PRIVATE)
    return picture


def main() -> None:
    here = Path(__file__).parent
    for name, draw in (
        ("release-point", release_point),
        ("joint-privacy", joint_privacy),
        ("ranking-routes", ranking_routes),
    ):
        draw().save(here / f"{name}.svg")


if __name__ == "__main__":
    main()
