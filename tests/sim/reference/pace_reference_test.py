"""Compares `pace` of the product with the reference written from its specification alone
(cc/pace/spec.md): pace_reference_test.py PROGRAM [unittest flags].

Steady rates, while all flows of a scenario run, and completion times of every flow agree within
2%. Hosts on one switch at 400 Gb/s; sizes in bytes of payload, times in microseconds.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pace

PROGRAM = ""
WITHIN = 0.02
LIMIT_S = 300
SETTLED_US = 18  # four round trips after the last flow's start


def pair(source, destination, size, start=0, weight=1):
    """One message as a job of its own."""
    return {"kind": "pairs", "name": f"from{source}to{destination}", "bytes": size,
            "hosts": [source, destination], "start": f"{start}us", "weight": weight}


def incast(senders):
    return {"kind": "incast", "name": "incast", "senders": senders, "bytes": "1MB"}


def simulate(jobs, hosts, settings):
    tables = {"topology": {"kind": "star", "hosts": hosts, "rate": "400G"}, "transport": {},
              "run": {"sample_interval": "1us", "sample_series": 256, "sample_points": 1_000_000}}
    for key, value in settings.items():
        table, name = key.split(".")
        tables[table][name] = value
    lines = []
    for name, table in [*tables.items(), *(("[workload.job]", job) for job in jobs)]:
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    with tempfile.TemporaryDirectory() as folder:
        spec, result = pathlib.Path(folder, "run.toml"), pathlib.Path(folder, "run.json")
        spec.write_text("\n".join(lines), "utf-8")
        subprocess.run([PROGRAM, "sim", "-q", "--json", result, spec], check=True, timeout=LIMIT_S)
        return json.loads(result.read_text("utf-8"))


class PaceReference(unittest.TestCase):
    def agree(self, hosts, *jobs, settings=None, **arguments):
        result = simulate(jobs, hosts, settings or {})
        flows = result["flows"]
        models = [pace.Flow(f["source"], f["destination"], f["bytes"], f["start_ns"] / 1e9,
                            jobs[f["job"]].get("weight", 1)) for f in flows]
        pace.World(models, **arguments).run()
        first = int(max(model.start for model in models) * 1e6) + SETTLED_US
        last = int(min([model.received_at * 1e6 for model in models]
                       + [flow["received_ns"] / 1e3 for flow in flows])) - 2
        self.assertGreater(last - first, 10, "the flows have no time in common")
        sampled = {int(series["name"].split(":")[0]): series["values"]
                   for series in result["rates_bps"]}
        for flow, model in zip(flows, models):
            with self.subTest(flow=flow["id"]):
                rate = sum(sampled[flow["id"]][first:last]) / (last - first)
                modelled = (model.arrived[last] - model.arrived[first]) * 8e6 / (last - first)
                self.assertLess(abs(modelled / rate - 1), WITHIN, "rate")
                took = (flow["finish_ns"] - flow["start_ns"]) / 1e9
                self.assertLess(abs((model.finish - model.start) / took - 1), WITHIN, "time")

    def test_incast_of_8(self):
        self.agree(9, incast(8))

    def test_incast_of_32(self):
        self.agree(33, incast(32))

    def test_one_sender_to_four(self):
        self.agree(5, *(pair(0, i, "2MB") for i in (1, 2, 3, 4)))

    def test_weights(self):
        self.agree(4, *(pair(i, 0, f"{w}MB", 0, w) for i, w in ((1, 1), (2, 2), (3, 4))))

    def test_chain_of_an_incast_and_a_sender_of_two(self):
        self.agree(6, *(pair(i, 0, "2MB") for i in (1, 2, 3, 4)), pair(4, 5, "4MB"))

    def test_newcomers_to_a_busy_link(self):
        self.agree(4, pair(1, 0, "8MB"), pair(2, 0, "2MB", 40), pair(3, 0, "2MB", 80))

    def test_flows_that_end_one_after_another(self):
        self.agree(5, *(pair(i, 0, f"{i}MB") for i in (1, 2, 3, 4)))

    def test_permutation(self):
        self.agree(8, {"kind": "permutation", "name": "p", "bytes": "2MB"})

    def test_rate_that_the_application_bounds(self):
        self.agree(6, *(pair(i, 0, "2MB") for i in (1, 2, 3, 4)), pair(4, 5, "1MB"),
                   settings={"transport.rate_max": "60G"}, rate_max=60e9)

    def test_slower_cable(self):
        self.agree(5, pair(1, 0, "2MB"), pair(2, 0, "2MB"), pair(2, 4, "4MB"), rates={0: 200e9},
                   settings={"topology.slow_hosts": [0], "topology.slow_rate": "200G"})

    def test_slower_cable_that_the_hosts_do_not_know(self):
        self.agree(5, pair(1, 0, "4MB"), pair(2, 0, "4MB"), pair(3, 4, "16MB"), rates={0: 200e9},
                   known=False, settings={"topology.slow_hosts": [0], "topology.slow_rate": "200G",
                                          "transport.line_rate": "400G"})

    def test_all_to_all(self):
        self.agree(16, {"kind": "all_to_all", "name": "a", "bytes": "1MB"})


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
