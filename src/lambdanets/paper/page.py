"""All tables and pictures as a single HTML file, without scripts or other files."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from lambdanets.paper.comparison import COLUMNS, comparison, heading
from lambdanets.paper.entries import PublishedEntry, summary, title
from lambdanets.paper.measure import Measurement
from lambdanets.paper.networks import networks
from lambdanets.paper.pictures import Picture, pictures
from lambdanets.paper.sizes import Counted

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 70em; margin: 2em auto;
  padding: 0 1em; }
h2 { margin-top: 2.2em; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; margin: 1em 0; }
caption { text-align: left; font-weight: 600; padding: .3em 0; }
th, td { padding: .2em .8em; text-align: left; vertical-align: top; border-bottom: 1px solid #e4e4e4; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.matches { color: #00664a; } .differs { color: #a63603; font-weight: 600; } .paper { color: #666; }
.warning { background: #fff3d6; padding: .5em 1em; }
figure { margin: 1.5em 0; } img { max-width: 100%; height: auto; } figcaption { color: #444; }
"""
CLASSES = {"matches": "matches", "differs": "differs", "the paper's": "paper"}
ABOUT = (
    "“Published” is what the paper prints. “Ours” is counted by this library: parameters and FLOPs of its networks, "
    "the memory of Table 4 by its formulas, for Table 2 the powers with which counted operations grow. Every accuracy, "
    "average precision and TPU throughput on this page is the paper's and was not run here."
)
HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>LambdaNetworks, regenerated</title>
"""


def page(entries: Sequence[PublishedEntry], counted: Sequence[Counted], measurement: Measurement | None = None) -> str:
    """The page with the tables of the entries and their pictures."""
    parts = [
        "<h1>LambdaNetworks: the paper's tables, regenerated</h1>",
        f"<p><strong>{escape(summary(entries))}.</strong></p><p>{escape(ABOUT)}</p>",
        *map(figure, pictures(entries, counted, measurement)),
    ]
    for table, rows in groupby(entries, key=lambda entry: entry.table):
        parts.append(section(table, list(rows)))
        if measurement is not None and measurement.speeds(table):
            parts.append(speeds(table, measurement))
    if counted:
        parts.append(sizes(counted))
    body = "\n".join(parts)
    return f"{HEAD}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"


def figure(picture: Picture) -> str:
    source = f"data:image/svg+xml;base64,{b64encode(picture.svg).decode()}"
    words = f"<strong>{escape(picture.name)}.</strong> {escape(picture.caption)}"
    return f'<figure><img src="{source}" alt="{escape(picture.name)}"><figcaption>{words}</figcaption></figure>'


def section(table: int, entries: Sequence[PublishedEntry]) -> str:
    """A table of the paper, with a line for each figure of a row."""
    lines = []
    for row, figures in groupby(entries, key=lambda entry: entry.row):
        found = list(figures)
        head = f'<th scope="row" rowspan="{len(found)}">{escape(row)}</th>'
        for entry in found:
            lines.append(f"<tr>{head}{cells(entry)}</tr>")
            head = ""
    heads = header(("row", "quantity", "published", "ours", "verdict"))
    return f'<h2 id="table-{table}">{escape(title(table))}</h2><table>{heads}<tbody>{"".join(lines)}</tbody></table>'


def cells(entry: PublishedEntry) -> str:
    quantity = entry.quantity_in_words + (" (the paper's)" if entry.ours is None else "")
    return (
        f"<td>{escape(quantity)}</td>{number(entry.published)}{number(entry.ours_in_words)}"
        f'<td class="{CLASSES[entry.verdict]}">{escape(entry.verdict_in_words)}</td>'
    )


def speeds(table: int, measurement: Measurement) -> str:
    lines = (
        f'<tr><th scope="row">{escape(row or "")}</th>{"".join(map(number, figures))}</tr>'
        for row, *figures in comparison(table, measurement.rows)
    )
    caption = f"{heading(table)}; {measurement.machine_in_words}"
    warning = '<p class="warning">Quick: small images, one round. These numbers mean nothing.</p>'
    made = f"<table><caption>{escape(caption)}</caption>{header(COLUMNS)}<tbody>{''.join(lines)}</tbody></table>"
    return warning + made if measurement.settings.quick else made


def sizes(counted: Sequence[Counted]) -> str:
    """A collapsed list of all networks with their rows."""
    lines = []
    for network in counted:
        name, changes = networks()[network.rows[0]]
        made = ", ".join([repr(name), *(f"{field}={value!r}" for field, value in changes.items())])
        rows = "; ".join(f"Table {table}: {row}" for table, row in network.rows)
        figures = number(f"{network.parameters:.3f}") + number(f"{network.flops:.3f}")
        lines.append(f"<tr><td>{escape(rows)}</td><td><code>create_model({escape(made)})</code></td>{figures}</tr>")
    heads = header(("rows", "network", "parameters, M", "FLOPs, G"))
    listed = f"<table>{heads}<tbody>{''.join(lines)}</tbody></table>"
    return f"<h2>The networks</h2><details><summary>{len(counted)} networks, counted</summary>{listed}</details>"


def header(names: Iterable[str]) -> str:
    heads = (f'<th scope="col">{escape(name)}</th>' for name in names)
    return f"<thead><tr>{''.join(heads)}</tr></thead>"


def number(text: str | None) -> str:
    return f'<td class="number">{escape(text or "-")}</td>'
