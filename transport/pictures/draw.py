#!/usr/bin/env python3
"""Draws layers.svg, the folders of the product and what each includes, from the #include lines.
Run it without arguments after a change of them; lint's check `picture` fails until then.
Python 3.11, nothing else."""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PICTURE = HERE / "layers.svg"

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
CPP = {".h", ".hpp", ".cc"}
ONE_BOX = ["bench", "cc", "gdr"]  # with all of their folders
BOX_PER_FOLDER = ["net_plugin", "transport"]
BASE = "transport/base"  # nearly all include it: a bar below the others, without arrows

# Readable on white and on black.
GREY = "#808080"
FILL = {"transport": "#2f81d6", "net_plugin": "#3a9d5d", "bench": "#808080", "cc": "#cf6a0a",
        "gdr": "#8a63d2"}

# Pixels.
WIDTH, MARGIN = 900, 10
BOX_WIDTH, BOX_HEIGHT, GAP, LANE = 136, 30, 12, 8
ROW = 74  # from one row of boxes to the next
SWEEPS = 24


def box_of(path):
    """The box that a file belongs to; None: it is not in the picture."""
    parts = pathlib.PurePosixPath(path).parts
    if parts[0] in ONE_BOX:
        return parts[0]
    if parts[0] in BOX_PER_FOLDER:
        return "/".join(parts[:2]) if len(parts) > 2 else parts[0]
    return None


def product_files(root):
    """(path from the root, text) of the product's C++ files."""
    for folder in ONE_BOX + BOX_PER_FOLDER:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CPP:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def included(files):
    """{box: boxes that its files include}."""
    graph = {}
    for path, text in files:
        own = graph.setdefault(box_of(path), set())
        own |= {box_of(name) for name in INCLUDE.findall(text)} - {box_of(path), None}
    for names in list(graph.values()):
        for name in names:
            graph.setdefault(name, set())
    return graph


def reachable(graph, start):
    found, left = set(), [start]
    while left:
        for name in graph[left.pop()] - found:
            found.add(name)
            left.append(name)
    return found


def reduced(graph):
    """Without the arrows that a way over others says already."""
    for name in graph:
        if name in reachable(graph, name):
            raise ValueError(f"{name} includes itself by way of others: no layers can be drawn")
    return {name: {target for target in targets
                   if not any(target in reachable(graph, other) for other in targets)}
            for name, targets in graph.items()}


def rows_of(graph):
    """{box: row}, 0 at the bottom: above all that it includes, and near those that include it."""
    rows = {}

    def lowest(name):
        if name not in rows:
            rows[name] = 1 + max((lowest(target) for target in graph[name]), default=-1)
        return rows[name]

    for name in graph:
        lowest(name)
    for name in sorted(graph, key=lambda name: (-rows[name], name)):
        above = [rows[other] for other in graph if name in graph[other]]
        if above and len(above) >= len(graph[name]):
            rows[name] = min(above) - 1
    return rows


def ways_of(graph, rows):
    """Each arrow as the places that it goes through, one in each row: boxes at its ends, lanes
    (box, target, row) between. The lanes of all arrows to one target from one box are its own."""
    return [[name, *((name, target, row) for row in range(rows[name] - 1, rows[target], -1)),
             target]
            for name in sorted(graph) for target in sorted(graph[name])]


def crossings(upper, lower, links):
    """Of the links between two rows."""
    at = {place: i for i, place in enumerate(upper)} | {p: i for i, p in enumerate(lower)}
    ends = sorted((at[a], at[b]) for a, b in links if a in at and b in at)
    return sum(first[1] > second[1] and first[0] < second[0]
               for i, first in enumerate(ends) for second in ends[i + 1:])


def all_crossings(order, links):
    return sum(crossings(order[i + 1], order[i], links) for i in range(len(order) - 1))


def arranged(rows, ways):
    """The places of each row from left to right, so that few arrows cross."""
    level = dict(rows) | {place: place[2] for way in ways for place in way[1:-1]}
    order = [sorted((p for p in level if level[p] == row), key=str)
             for row in range(max(level.values()) + 1)]
    links = sorted({link for way in ways for link in zip(way, way[1:])}, key=str)
    beside = {place: [] for place in level}
    for a, b in links:
        beside[a].append(b)
        beside[b].append(a)
    best, fewest = [list(row) for row in order], all_crossings(order, links)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 1
        for i in reversed(range(len(order))) if down else range(len(order)):
            other = i + 1 if down else i - 1
            if not 0 <= other < len(order):
                continue
            at = {place: n / len(order[other]) for n, place in enumerate(order[other])}
            here = {place: n / len(order[i]) for n, place in enumerate(order[i])}
            order[i].sort(key=lambda p: mean([at[q] for q in beside[p] if q in at], here[p]))
        found = all_crossings(order, links)
        if found < fewest:
            best, fewest = [list(row) for row in order], found
    return best, links


def mean(values, otherwise):
    return round(sum(values) / len(values), 6) if values else otherwise


def width_of(place):
    return BOX_WIDTH if isinstance(place, str) else LANE


def placed(order, links):
    """{place: middle}, near what it is joined with, in the row's order and without overlap."""
    beside = {}
    for a, b in links:
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
    x = {}
    for row in order:
        free = WIDTH - 2 * MARGIN - sum(map(width_of, row))
        left = MARGIN
        for place in row:
            space = free / (len(row) + 1)
            x[place] = left + space + width_of(place) / 2
            left += space + width_of(place)
    for _ in range(SWEEPS):
        for row in order:
            for place in row:
                x[place] = mean([x[other] for other in beside.get(place, [])], x[place])
            push_apart(row, x)
    return {place: round(middle) for place, middle in x.items()}


def push_apart(row, x):
    """Half way between what pushing to the right and pushing to the left would make of them."""
    wanted = {place: x[place] for place in row}
    right = pushed_left(row, pushed_right(row, wanted))
    left = pushed_right(row, pushed_left(row, wanted))
    for place in row:
        x[place] = round((left[place] + right[place]) / 2, 6)


def pushed_right(row, x):
    new, edge = {}, MARGIN
    for place in row:
        new[place] = max(x[place], edge + width_of(place) / 2)
        edge = new[place] + width_of(place) / 2 + GAP
    return new


def pushed_left(row, x):
    new, edge = {}, WIDTH - MARGIN
    for place in reversed(row):
        new[place] = min(x[place], edge - width_of(place) / 2)
        edge = new[place] - width_of(place) / 2 - GAP
    return new


def box(x, y, width, words, colour):
    return (f'<rect x="{x}" y="{y}" width="{width}" height="{BOX_HEIGHT}" rx="4" fill="{colour}" '
            f'fill-opacity="0.18" stroke="{colour}"/>\n'
            f'<text x="{x + width // 2}" y="{y + 20}" text-anchor="middle">{words}</text>')


def arrow(points):
    """Through the points, each a place in another row."""
    (x, y), path = points[0], []
    path.append(f"M{x},{y}")
    for to_x, to_y in points[1:]:
        half = (y + to_y) // 2
        path.append(f"C{x},{half} {to_x},{half} {to_x},{to_y}")
        x, y = to_x, to_y
    return (f'<path d="{" ".join(path)}" fill="none" stroke="{GREY}" '
            'marker-end="url(#head)"/>')


def picture(files):
    """The text of the SVG."""
    graph = included(files)
    without = sorted(name for name in graph if name != BASE and BASE not in graph[name])
    graph = reduced({name: targets - {BASE} for name, targets in graph.items() if name != BASE})
    rows = rows_of(graph)
    ways = ways_of(graph, rows)
    order, links = arranged(rows, ways)
    x = placed(order, links)
    top = {name: MARGIN + (len(order) - 1 - row) * ROW for name, row in rows.items()}
    parts = []
    for way in ways:
        points = [(x[way[0]], top[way[0]] + BOX_HEIGHT)]
        for lane in way[1:-1]:
            y = MARGIN + (len(order) - 1 - lane[2]) * ROW
            points += [(x[lane], y), (x[lane], y + BOX_HEIGHT)]
        parts.append(arrow([*points, (x[way[-1]], top[way[-1]] - 2)]))
    for name in sorted(graph):
        colour = FILL[name.split("/")[0]]
        parts.append(box(x[name] - BOX_WIDTH // 2, top[name], BOX_WIDTH,
                         name.removeprefix("transport/"), colour))
    bottom = MARGIN + len(order) * ROW - 30
    parts.append(box(MARGIN, bottom, WIDTH - 2 * MARGIN,
                     f"base: included by all but {', '.join(without)}", FILL["transport"]))
    height = bottom + BOX_HEIGHT + MARGIN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" '
            f'fill="{GREY}">\n<title>The folders of Pacecar, and what each includes</title>\n'
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{GREY}"/></marker>'
            '</defs>\n' + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    PICTURE.write_text(picture(product_files(ROOT)))
