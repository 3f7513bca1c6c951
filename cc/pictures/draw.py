#!/usr/bin/env python3
"""Draws the pictures of cc/README.md and cc/pace/method.md from runs of `pacecar sim`, on the
network of bench/plans/pace.toml. Python 3.11, nothing else."""

import argparse
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKET = 4150  # bytes on the wire
LINE = 400  # Gb/s

NETWORK = f"""
[topology]
file = "{ROOT}/bench/plans/yardstick/ls128_400.topo"
[fabric]
overhead = 20
queue = 419150
control_queue = 838300
trimming = true
trimmed = 64
host_queue = 0
ecn = {{kind = "red", when = "dequeue", low = 87150, high = 336150, max_probability = 1.0}}
[transport]
mtu = 4086
paths = 64
path_policy = "balanced"
ack_bytes = 16340
base_rtt = "8337ns"
timeout = "65298ns"
reordering = "any"
window_packets = 1024
[run]
time_limit = "20ms"
sample_interval = "{{sample}}"
sample_points = 50000
"""
INCAST = "[workload]\nkind = 'incast'\nsenders = {}\nbytes = 1000000\nhosts = {}\n"
NEWCOMER = """
[[workload.job]]
name = "running"
kind = "pairs"
bytes = "20MB"
hosts = [16, 0]
[[workload.job]]
name = "newcomer"
kind = "pairs"
bytes = "5MB"
start = "100us"
hosts = [32, 0]
"""
# Readable on white and on black.
GREY = "#808080"
COLOURS = {"pace": "#2f81d6", "nscc": "#cf6a0a", "swift": "#3a9d5d"}


class Simulator:
    def __init__(self, program):
        self.program = program

    def run(self, algorithm, workload, sample="1us"):
        with tempfile.TemporaryDirectory() as folder:
            spec, result = pathlib.Path(folder, "run.toml"), pathlib.Path(folder, "run.json")
            spec.write_text(NETWORK.replace("{sample}", sample) + workload)
            subprocess.run([self.program, "sim", spec, "--cc", algorithm, "--seed", "1", "--quiet",
                            "--json", result], check=True, stdout=subprocess.DEVNULL)
            return json.loads(result.read_text())


class Panel:
    """One pair of axes: x and y are (from, to, step between ticks, 0 for none)."""

    def __init__(self, x, y, top, height, left=64, width=620):
        self.x, self.y = x, y
        self.top, self.height, self.left, self.width = top, height, left, width
        self.parts = []

    def at(self, x, y):
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.left + across * self.width, 1), round(
            self.top + (1 - up) * self.height, 1)

    def text(self, x, y, words, colour=GREY, anchor="start"):
        self.parts.append(f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">'
                          f'{words}</text>')

    def label(self, x, y, words, colour=GREY, anchor="start"):
        self.text(*self.at(x, y), words, colour, anchor)

    def stroke(self, points, colour, width=1.5, more=""):
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                          f'stroke-width="{width}"{more}/>')

    def line(self, points, colour, more=""):
        points = [point for point in points if self.x[0] <= point[0] <= self.x[1]]
        self.stroke([self.at(*point) for point in points], colour, more=more)

    def bar(self, x, length, y, height, colour):
        left, top = self.at(x, y + height)
        right, bottom = self.at(x + length, y)
        self.parts.append(f'<rect x="{left:g}" y="{top:g}" width="{right - left:.1f}" '
                          f'height="{bottom - top:.1f}" fill="{colour}"/>')

    def axes(self, x_title, y_title):
        bottom, right = self.top + self.height, self.left + self.width
        for tick in ticks(self.y):
            height = self.at(self.x[0], tick)[1]
            self.stroke([(self.left, height), (right, height)], GREY, 0.5, ' opacity="0.4"')
            self.text(self.left - 6, height + 4, f"{tick:g}", anchor="end")
        for tick in ticks(self.x):
            across = self.at(tick, self.y[0])[0]
            self.stroke([(across, bottom), (across, bottom + 4)], GREY, 1)
            self.text(across, bottom + 18, f"{tick:g}", anchor="middle")
        self.stroke([(self.left, self.top), (self.left, bottom), (right, bottom)], GREY, 1)
        self.text(right, bottom + 34, x_title, anchor="end")
        self.text(8, self.top - 8, y_title)


def ticks(axis):
    first, last, step = axis
    count = int((last - first) / step + 1e-9) + 1 if step else 0
    return [first + step * i for i in range(count)]


def write(path, title, height, panels):
    body = "\n".join(part for panel in panels for part in panel.parts)
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 {height}" '
                    f'width="700" height="{height}" font-family="sans-serif" font-size="13">\n'
                    f'<title>{title}</title>\n{body}\n</svg>\n')


def series(entries, name):
    """(us, value) of the one whose name ends so."""
    entry = next(e for e in entries if e["name"].endswith(name))
    return [(i * entry["interval_ns"] / 1e3, value) for i, value in enumerate(entry["values"])]


def port(result):
    return [(x, y / 1e3) for x, y in series(result["queues_bytes"], "> host 0")]


def smooth(points, count):
    """Means of `count` neighbours."""
    return [(points[i][0], sum(y for _, y in points[i - count + 1:i + 1]) / count)
            for i in range(count - 1, len(points))]


def thin(points, step):
    """The largest of each `step` us."""
    most = {}
    for x, y in points:
        most[x // step] = max(most.get(x // step, 0), y)
    return [(step * i, y) for i, y in sorted(most.items())]


def draw_incast(simulator, path):
    panel = Panel((0, 700, 100), (0, 500, 100), 30, 230)
    panel.axes("time, us", "queue of the receiver's port, KB")
    workload = INCAST.format(32, [0, *range(64, 96)])
    for algorithm, place in (("nscc", (150, 130)), ("swift", (150, 445)), ("pace", (150, 25))):
        result = simulator.run(algorithm, workload)
        points, sums = thin(port(result), 4), result["metrics"]
        panel.line(points, COLOURS[algorithm])
        panel.label(*place, f'{algorithm}: at most {sums["queue_max_bytes"] / 1e3:.0f} KB, '
                    f'{sums["trims"]:.0f} packets trimmed', COLOURS[algorithm])
    write(path, "32 senders of 1 MB to one receiver: queue over time", 300, [panel])


def draw_phases(simulator, path):
    result = simulator.run("pace", INCAST.format(8, [0, *range(64, 72)]), sample="20ns")
    arrivals = [[x * 1e3 for x, y in series([entry], "") if y > 0]
                for entry in result["rates_bps"]]
    begin, gap = arrivals[0][1], (arrivals[0][-2] - arrivals[0][1]) / (len(arrivals[0]) - 3)
    length = PACKET * 8 / LINE
    panel = Panel((0, 2100, 500), (-1, 8, 0), 30, 230)
    panel.axes(f"time, ns; {gap:.0f} ns from packet to packet of one flow", "flow")
    for flow, times in enumerate(arrivals):
        row = 7 - flow
        panel.text(panel.left - 6, panel.at(0, row + 0.35)[1], f"{flow}", anchor="end")
        for time in times:
            if begin <= time < begin + 3 * gap:
                panel.bar(time - begin, length, row + 0.15, 0.6, COLOURS["pace"])
                panel.bar(time - begin, length, -0.85, 0.6, GREY)
    panel.text(panel.left - 6, panel.at(0, -0.65)[1], "all", anchor="end")
    write(path, "Arrivals of eight flows in their phases", 300, [panel])


def draw_newcomer(simulator, path):
    times = (80, 200, 20)
    rates = Panel(times, (0, 400, 100), 30, 150)
    queue = Panel(times, (0, 450, 100), 250, 110)
    rates.axes("", "rate, Gb/s of payload, mean of 4 us, under pace")
    queue.axes("time, us", "queue of the receiver's port, KB")
    for algorithm, place in (("nscc", (145, 350)), ("pace", (121, 75))):
        result = simulator.run(algorithm, NEWCOMER)
        queue.line(port(result), COLOURS[algorithm])
        most = result["metrics"]["queue_max_bytes"] / 1e3
        queue.label(*place, f"{algorithm}: at most {most:.0f} KB", COLOURS[algorithm])
        if algorithm == "pace":
            for flow, colour in (("16 > 0", GREY), ("32 > 0", COLOURS["pace"])):
                bits = series(result["rates_bps"], flow)
                rates.line(smooth([(x, y / 1e9) for x, y in bits], 4), colour)
    rates.label(118, 320, "the flow that was there")
    rates.label(118, 120, "the newcomer: starts at 100 us", COLOURS["pace"])
    write(path, "A second flow starts on a busy link: rates and queue", 400, [rates, queue])


PICTURES = {"incast": draw_incast, "phases": draw_phases, "newcomer": draw_newcomer}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pacecar", help="the program, such as build/release/bench/pacecar")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder (default: this one)")
    options = parser.parse_args()
    simulator = Simulator(options.pacecar)
    for name, draw in PICTURES.items():
        draw(simulator, options.out / f"{name}.svg")


if __name__ == "__main__":
    main()
