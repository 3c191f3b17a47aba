"""Draws docs/images/architecture.svg: the way of a record, the way of a decision, and the layers.

`make reference` writes it with the other pages that the code knows. The colour of a box in the two
upper parts is that of its layer in the third.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "images" / "architecture.svg"
WIDTH, HEIGHT = 1200, 1370
INK, SOFT, LINE, CARD, PANEL = "#1f2430", "#5b6475", "#8a93a5", "#faf8f3", "#ffffff"
FONT = "'Segoe UI', 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

# A colour per layer: the fill, and the border with the heading.
COLOURS = {
    "outside": ("#eceef2", "#5b6475"),
    "engines": ("#dcebfa", "#1f5f9e"),
    "contract": ("#d9f0ee", "#12706a"),
    "control": ("#fde7d3", "#a8500f"),
    "policies": ("#ece2f8", "#6a3aa3"),
    "measures": ("#e0f2dc", "#35702a"),
    "model": ("#fdf2c8", "#85650a"),
    "upper": ("#f6e3ea", "#9c3358"),
}


# The layers from top to bottom: name, what is in it, colour.
LAYERS = (
    (("cli", "the command trilithon", "upper"),),
    (("experiments", "the papers’ experiments and their result pages", "upper"),),
    (("service", "the daemon and its HTTP API", "upper"),),
    (("scenarios", "whole runs: an engine, its load, a policy, what came of it", "upper"),),
    (
        ("control", "loop, guard, journal, replay", "control"),
        ("engines", "Spark, simulated", "engines"),
        ("workloads", "jobs and load", "outside"),
    ),
    (("contract", "actions, outcomes, capabilities, the assembler", "contract"),),
    (
        ("pipelines", "jobs in Python", "outside"),
        ("recording", "Parquet, JSON", "outside"),
        ("spec", "jobs in YAML", "outside"),
    ),
    (("policies", "scene in, decisions out: threshold, henge", "policies"),),
    (("measures", "juice, utility, capacity, ETP, waiting, back-pressure", "measures"),),
    (("model", "job, intent, allocation, snapshot", "model"),),
    (
        ("folders", "where files are kept", "outside"),
        ("logs", "structured, to stderr", "outside"),
        ("errors", "one tree of codes", "outside"),
    ),
)

FACETS = (
    "parallelism",
    "weights",
    "placement",
    "key groups",
    "batching",
    "restart of an instance, of a job",
    "machines added, removed",
)


@dataclass
class Drawing:
    parts: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12.5,
        *,
        colour: str = SOFT,
        weight: int = 400,
        anchor: str = "middle",
    ) -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" '
            f'font-weight="{weight}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def rect(
        self, x: float, y: float, w: float, h: float, fill: str, stroke: str, radius: float = 8
    ) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>'
        )

    def box(
        self, x: float, y: float, w: float, h: float, title: str, lines: Sequence[str], layer: str
    ) -> None:
        """A heading with lines under it, together in the middle of the box."""
        fill, stroke = COLOURS[layer]
        self.rect(x, y, w, h, fill, stroke)
        top = y + h / 2 - (20 + 17 * len(lines)) / 2 + 15
        self.text(x + w / 2, top, title, 15.5, colour=stroke, weight=700)
        for row, line in enumerate(lines, start=1):
            self.text(x + w / 2, top + 3 + 17 * row, line, colour=INK)

    def listed(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        title: str,
        lines: Sequence[str],
        changes: Sequence[str],
    ) -> None:
        """A decision: why, then the kinds of change it may carry."""
        fill, stroke = COLOURS["policies"]
        self.rect(x, y, w, h, fill, stroke)
        self.text(x + w / 2, y + 26, title, 15.5, colour=stroke, weight=700)
        for row, line in enumerate(lines):
            self.text(x + w / 2, y + 46 + 17 * row, line, colour=INK)
        below = y + 46 + 17 * len(lines) + 10
        self.text(x + 14, below, "changes of", colour=stroke, weight=700, anchor="start")
        for row, line in enumerate(changes, start=1):
            self.text(x + 14, below + 17 * row, f"·  {line}", colour=INK, anchor="start")
        end = below + 17 * len(changes) + 22
        self.text(
            x + 14, end, "alerts, which change nothing", colour=stroke, weight=700, anchor="start"
        )

    def operator(self, x: float, y: float, name: str, used: int) -> None:
        """The tasks that an operator holds; those that get records are filled."""
        fill, stroke = COLOURS["engines"]
        self.rect(x, y, 164, 92, fill, stroke)
        self.text(x + 82, y + 24, name, 15.5, colour=stroke, weight=700)
        for task in range(6):
            inside = stroke if task < used else "#ffffff"
            self.parts.append(
                f'<circle cx="{x + 27 + 22 * task:g}" cy="{y + 48:g}" r="7.5" fill="{inside}" '
                f'stroke="{stroke}" stroke-width="1.4"/>'
            )
        self.text(x + 82, y + 79, f"{used} of 6 tasks used", colour=INK)

    def bracket(self, top: float, step: float, rows: tuple[int, int], lines: Sequence[str]) -> None:
        """Says something of the layers from one row to before another."""
        first, last = top + rows[0] * step, top + rows[1] * step - 6
        self.parts.append(
            f'<path d="M950 {first:g} h8 v{last - first:g} h-8" fill="none" stroke="{LINE}" '
            'stroke-width="2"/>'
        )
        base = (first + last) / 2 - 17 * (len(lines) - 1) / 2 + 5
        for row, line in enumerate(lines):
            self.text(970, base + 17 * row, line, 13.5, anchor="start")

    def panel(self, y: float, h: float, title: str, note: str, indent: float = 0) -> None:
        self.rect(20, y, WIDTH - 40, h, PANEL, "#ddd8cc", 12)
        self.text(40 + indent, y + 30, title, 18, colour=INK, weight=700, anchor="start")
        self.text(WIDTH - 40, y + 30, note, 13, anchor="end")

    def arrow(self, *points: tuple[float, float], colour: str = LINE, dotted: bool = False) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        dash = ' stroke-dasharray="2 4"' if dotted else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash} '
            'stroke-linejoin="round" marker-end="url(#head)"/>'
        )

    def topic(self, x: float, y: float, w: float, h: float, lines: Sequence[str]) -> None:
        """A cylinder: a Kafka topic."""
        fill, stroke = COLOURS["outside"]
        r = 9
        self.parts.append(
            f'<path d="M{x:g} {y + r:g} v{h - 2 * r:g} a{w / 2:g} {r} 0 0 0 {w:g} 0 '
            f'v{-(h - 2 * r):g} a{w / 2:g} {r} 0 0 0 {-w:g} 0 a{w / 2:g} {r} 0 0 0 {w:g} 0" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>'
        )
        self.text(x + w / 2, y + 47, lines[0], 15, colour=stroke, weight=700)
        self.text(x + w / 2, y + 65, lines[1], colour=INK)

    def render(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}" role="img" '
            'aria-label="The way of a record, the way of a decision, and the layers">\n'
            '<defs><marker id="head" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/>'
            "</marker></defs>\n"
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def title(d: Drawing) -> None:
    """Two stones stand, one lies across them."""
    for x, y, w, h in ((44, 50, 13, 34), (79, 50, 13, 34), (38, 36, 60, 13)):
        d.rect(x, y, w, h, "#c9c2b2", "#7d7563", 3)
    d.text(118, 62, "Trilithon", 26, colour=INK, weight=700, anchor="start")
    d.text(118, 84, "measure and act stand, intent lies on top", 14, anchor="start")


def record(d: Drawing, y: float) -> None:
    d.panel(y, 262, "The way of a record", "on Spark’s real-time mode: rescaled without a restart")
    top, bar = y + 58, y + 194
    middle = top + 46
    d.topic(40, top - 4, 88, 100, ("Kafka", "topic in"))
    d.box(166, top + 8, 96, 76, "reader", ("of a partition",), "engines")
    d.box(296, top + 8, 106, 76, "route + gate", ("table, credits",), "engines")
    d.operator(436, top, "operator A", used=4)
    d.box(634, top + 8, 106, 76, "route + gate", ("table, credits",), "engines")
    d.operator(774, top, "operator B", used=2)
    d.box(972, top + 8, 76, 76, "sink", ("latency",), "engines")
    d.topic(1082, top - 4, 78, 100, ("Kafka", "topic out"))
    gaps = ((128, 166), (262, 296), (402, 436), (600, 634), (740, 774), (938, 972), (1048, 1082))
    for start, end in gaps:
        d.arrow((start, middle), (end - 1, middle))
    for x, bottom in ((214, 86), (518, 94), (856, 94), (1010, 86)):
        d.arrow((x, top + bottom), (x, bar - 1), dotted=True)
    for x in (349, 687):
        d.arrow((x, bar), (x, top + 86))
    measured = "up to the gates: routing tables, credits, the driver’s time"
    pushed = "down to the engine: counts, service time, waiting, origin time"
    d.box(40, bar, 1120, 50, "probe in each executor", (f"{pushed}  ·  {measured}",), "engines")


def decision(d: Drawing, y: float) -> None:
    d.panel(y, 456, "The way of a decision", "one round of the controller", indent=222)
    one, two, three = y + 56, y + 208, y + 340
    d.arrow((84, y - 56), (84, y + 15))
    d.arrow((136, y + 16), (136, y - 55))
    d.text(148, y - 16, "↓ a report each second  ·  ↑ an exchange every 100 ms", anchor="start")
    engine = ("Spark, or the", "simulated cluster:", "one contract,", "one suite of tests")
    d.box(40, y + 16, 152, 420, "engine", engine, "engines")

    first = (
        (262, 132, "assembler", ("makes one snapshot", "of all reports"), "contract"),
        (432, 132, "snapshot", ("all that is known", "at one moment"), "model"),
        (602, 142, "scene", ("series, intents,", "machines, feedback"), "policies"),
        (
            782,
            140,
            "policies",
            ("in layers: each sees", "the decisions of", "those before it"),
            "policies",
        ),
    )
    for x, w, name, lines, layer in first:
        d.box(x, one, w, 92, name, lines, layer)
    for start, end in ((192, 262), (394, 432), (564, 602), (744, 782), (922, 960)):
        d.arrow((start, one + 46), (end - 1, one + 46))
    d.text(227, one + 37, "reports")
    d.listed(960, one, 200, 252, "decision", ("reason, numbers, causes,", "expectation"), FACETS)

    d.box(262, two, 132, 92, "outcome", ("done, refused", "or unknown"), "contract")
    d.arrow((192, two + 46), (261, two + 46))
    d.arrow((394, two + 46), (673, two + 46), (673, one + 93))
    d.text(532, two + 37, "feedback, by decision id:")
    d.text(532, two + 64, "what was granted or why not, the outcome,")
    d.text(532, two + 81, "whether the expectation was met")
    d.arrow((328, two + 92), (328, two + 112), (549, two + 112), (549, three - 1))

    able = ("what can the engine do live,", "at a batch boundary, with", "an outage, not at all?")
    granted = ("bounds, quotas, cool-", "downs, quiet hours,", "missing data, modes")
    kept = ("wanted before done;", "for explain, replay and", "learned costs")
    d.box(960, three, 200, 96, "capability check", able, "control")
    d.box(714, three, 170, 96, "guard", granted, "control")
    d.box(464, three, 170, 96, "journal", kept, "control")
    d.arrow((1060, one + 252), (1060, three - 1))
    for start, end in ((960, 884), (714, 634), (464, 192)):
        d.arrow((start, three + 48), (end + 1, three + 48))
    d.text(922, three + 39, "what it can")
    d.text(674, three + 39, "granted")
    d.text(328, three + 39, "actions: one-shot ones at most once")


def layers(d: Drawing, y: float) -> None:
    d.panel(y, 470, "The layers", "src/trilithon: a layer imports only from those below it")
    top, step, left, right = y + 50, 37, 40, 940
    for row, names in enumerate(LAYERS):
        width = (right - left - 10 * (len(names) - 1)) / len(names)
        for column, (name, what, layer) in enumerate(names):
            x, (fill, stroke) = left + column * (width + 10), COLOURS[layer]
            d.rect(x, top + row * step, width, step - 6, fill, stroke, 6)
            base = top + row * step + 21
            d.text(x + 14, base, name, 14.5, colour=stroke, weight=700, anchor="start")
            d.text(x + width - 14, base, what, colour=INK, anchor="end")
    d.bracket(top, step, (0, 4), ("whole programs:", "they may use", "everything below"))
    d.bracket(top, step, (4, 5), ("none of the three", "knows another"))
    d.bracket(
        top,
        step,
        (7, 10),
        ("pure: no clock, no", "randomness, no files; what", "decides can be replayed"),
    )


def render() -> str:
    drawing = Drawing()
    drawing.rect(1, 1, WIDTH - 2, HEIGHT - 2, CARD, "#d6d0c2", 16)
    title(drawing)
    record(drawing, 104)
    decision(drawing, 404)
    layers(drawing, 880)
    return drawing.render()


def main() -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
