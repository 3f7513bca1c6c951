#!/usr/bin/env python3
"""Draws cc/pictures/incast.svg from runs of `pacecar sim` on the network of bench/plans/pace.toml:
the queue of a receiver's port over time, 32 senders of 1 MB to one. Hosts are late as hosts with
RDMA NICs are (bench/profiles/verbs.toml); ideal hosts show the limit."""

import argparse
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PLANS = HERE.parent.parent / "bench/plans"
INCAST = f"""sample_interval = "1us"
[workload]
kind = "incast"
senders = 32
bytes = 1000000
hosts = {[0, *range(64, 96)]}
"""
# Readable on white and on black.
GREY = "#808080"
# (algorithm, hosts): colour, height of the words in KB
ARMS = {("nscc", "verbs"): ("#cf6a0a", 130), ("swift", "verbs"): ("#3a9d5d", 445),
        ("pace", "verbs"): ("#2f81d6", 200), ("pace", "ideal"): ("#8aa4c8", 25)}
# Late hosts have their own settings in place of these keys, and measure the round trip.
OF_IDEAL_HOSTS = ("host_queue", "ack_bytes", "base_rtt", "timeout")
LEFT, TOP, WIDTH, HEIGHT = 64, 30, 620, 230  # of the axes
MOST_US, MOST_KB = 700, 500
STEP_US = 4  # of which the longest queue is drawn


def place(us, kb):
    return round(LEFT + us / MOST_US * WIDTH, 1), round(TOP + (1 - kb / MOST_KB) * HEIGHT, 1)


def line(points, colour, width):
    path = " ".join(f"{x:g},{y:g}" for x, y in (place(*point) for point in points))
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def text(x, y, words, colour=GREY, anchor="start"):
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


def axes():
    yield line([(0, MOST_KB), (0, 0), (MOST_US, 0)], GREY, 1)
    for kb in range(0, MOST_KB + 1, 100):
        yield line([(0, kb), (MOST_US, kb)], GREY, 0.3)
        yield text(LEFT - 6, place(0, kb)[1] + 4, kb, anchor="end")
    for us in range(0, MOST_US + 1, 100):
        yield text(place(us, 0)[0], TOP + HEIGHT + 18, us, anchor="middle")
    yield text(LEFT + WIDTH, TOP + HEIGHT + 34, "time, us", anchor="end")
    yield text(8, TOP - 8, "queue of the receiver's port, KB")


def simulate(program, algorithm, hosts):
    network = (PLANS / "pace.toml").read_text().partition("[topology]")[2].partition("[[arm]]")[0]
    spec = "[topology]" + network.replace('file = "', f'file = "{PLANS}/') + INCAST
    if hosts != "ideal":
        spec = "".join(line for line in spec.splitlines(True)
                       if not line.startswith(OF_IDEAL_HOSTS)) + f'[hosts]\nmodel = "{hosts}"\n'
    with tempfile.TemporaryDirectory() as folder:
        run, result = pathlib.Path(folder, "run.toml"), pathlib.Path(folder, "run.json")
        run.write_text(spec)
        subprocess.run([program, "sim", run, "--cc", algorithm, "--seed", "1", "--quiet",
                        "--json", result], check=True, stdout=subprocess.DEVNULL)
        return json.loads(result.read_text())


def curve(result, algorithm, hosts):
    colour, label_kb = ARMS[algorithm, hosts]
    queue = next(e for e in result["queues_bytes"] if e["name"].endswith("> host 0"))
    samples = STEP_US * 1000 // queue["interval_ns"]
    values = queue["values"][:MOST_US // STEP_US * samples]
    yield line([(i / samples * STEP_US, max(values[i:i + samples]) / 1e3)
                for i in range(0, len(values), samples)], colour, 1.5)
    sums = result["metrics"]
    where = ", ideal hosts" if hosts == "ideal" else ""
    longest_kb = sums["queue_max_bytes"] / 1e3
    yield text(*place(150, label_kb), f'{algorithm}{where}: at most {longest_kb:.0f} KB, '
               f'{sums["trims"]:.0f} packets trimmed', colour)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pacecar", help="the program, such as build/release/bench/pacecar")
    options = parser.parse_args()
    parts = list(axes())
    for arm in ARMS:
        parts += curve(simulate(options.pacecar, *arm), *arm)
    (HERE / "incast.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 300" width="700" height="300" '
        'font-family="sans-serif" font-size="13">\n<title>32 senders of 1 MB to one receiver: '
        'queue over time</title>\n' + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    main()
