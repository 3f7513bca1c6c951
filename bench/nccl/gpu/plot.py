"""Draws bus bandwidth over size, with a panel for each operation, as one SVG."""

import html
import math
import sys

from figures import size_text
from machine import ROOT

sys.path.append(str(ROOT / "cc/pictures"))
import draw  # noqa: E402

HEIGHT, GAP, TOP = 150, 75, 60
COLOURS = ["#808080", "#2f81d6", "#cf6a0a", "#3a9d5d", "#9a5bc7", "#c23b4e"]
SIZE_TICK = 4  # powers of two between marks


def write(path, summaries, ranks):
    """`summaries` is {arm: lines of figures.summary}; the arms differ by colour."""
    colours = {arm: COLOURS[i % len(COLOURS)] for i, arm in enumerate(summaries)}
    panels = []
    for op in dict.fromkeys(line["op"] for rows in summaries.values() for line in rows):
        lines = {arm: [line for line in rows if line["op"] == op]
                 for arm, rows in summaries.items()}
        if any(lines.values()):
            panels.append(panel(op, lines, colours, TOP + len(panels) * (HEIGHT + GAP)))
    if panels:
        legend(panels[0], colours)
    draw.write(path, f"Bus bandwidth of NCCL, {ranks} ranks",
               TOP + len(panels) * (HEIGHT + GAP), panels)


def panel(op, lines, colours, top):
    points = {arm: [(math.log2(row["size_bytes"]), math.log10(row["busbw_Bps"] * 1e-9))
                    for row in rows] for arm, rows in lines.items()}
    x, y = zip(*(point for some in points.values() for point in some))
    first, last = math.floor(min(x)), max(math.ceil(max(x)), math.floor(min(x)) + 1)
    low, high = math.floor(min(y)), max(math.ceil(max(y)), math.floor(min(y)) + 1)
    # The axes are logarithms: their marks are named here.
    made = draw.Panel((first, last, 0), (low, high, 0), top, HEIGHT)
    made.axes("", f"{op}: bus bandwidth, GB/s")
    for power in range(low, high + 1):
        left, height = made.at(first, power)
        made.stroke([(left, height), (left + made.width, height)], draw.GREY, 0.5,
                    ' opacity="0.4"')
        made.text(left - 6, height + 4, f"{10.0 ** power:g}", anchor="end")
    for power in range(first, last + 1, SIZE_TICK):
        across, bottom = made.at(power, low)
        made.text(across, bottom + 18, size_text(1 << power), anchor="middle")
    for arm, some in points.items():
        if some:
            made.line(some, colours[arm])
    return made


def legend(first, colours):
    width = first.width / len(colours)
    for i, (arm, colour) in enumerate(colours.items()):
        first.text(first.left + width * i, TOP - 36, html.escape(arm), colour)
