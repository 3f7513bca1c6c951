#!/usr/bin/env python3
"""Draws the folders of the product and what each includes, from the #include lines: layers.dot, and
layers.svg from it with graphviz (package graphviz). Run it without arguments after a change of
them; lint's check `picture` fails until then."""

import graphlib
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GRAPH, PICTURE = HERE / "layers.dot", HERE / "layers.svg"

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ONE_BOX = ["bench", "cc", "gdr"]  # with all of their folders
BOX_PER_FOLDER = ["net_plugin", "transport"]
BASE = "transport/base"  # nearly all include it: left out, and named in the picture's title

# Readable on white and on black.
GREY = "#808080"
COLOURS = {"transport": "#2f81d6", "net_plugin": "#3a9d5d", "bench": GREY, "cc": "#cf6a0a",
           "gdr": "#8a63d2"}


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
            if path.suffix in {".h", ".hpp", ".cc"}:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def graph(files):
    """The text of layers.dot. graphlib.CycleError: the boxes have no layers."""
    arrows = {(box_of(path), box_of(name))
              for path, text in files for name in INCLUDE.findall(text)}
    boxes = {box_of(path) for path, _ in files}
    arrows = {(box, other) for box, other in arrows if box != other and other in boxes}
    graphlib.TopologicalSorter({box: [other for start, other in arrows if start == box]
                                for box in boxes}).prepare()
    without = sorted(box for box in boxes - {BASE} if (box, BASE) not in arrows)
    lines = [f'label="base is included by all but {", ".join(without)}"',
             f'fontname="sans-serif" fontsize=12 fontcolor="{GREY}" bgcolor="transparent"',
             'ranksep=0.35',
             f'node [shape=box style="rounded,filled" fontname="sans-serif" fontsize=12 height=0.4 '
             f'width=1.5 fontcolor="{GREY}"]', f'edge [color="{GREY}" arrowsize=0.6]']
    for box in sorted(boxes - {BASE}):
        colour = COLOURS[box.split("/")[0]]
        lines.append(f'"{box}" [label="{box.removeprefix("transport/")}" color="{colour}" '
                     f'fillcolor="{colour}30"]')
    lines += [f'"{box}" -> "{other}"' for box, other in sorted(arrows)
              if BASE not in (box, other)]
    return "digraph layers {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


if __name__ == "__main__":
    text = graph(list(product_files(ROOT)))
    picture = text
    # tred leaves out the arrows that a way over others says already.
    for command in (["tred"], ["dot", "-Tsvg"]):
        picture = subprocess.run(command, input=picture, check=True, capture_output=True,
                                 text=True).stdout
    PICTURE.write_text(picture)
    GRAPH.write_text(text)
