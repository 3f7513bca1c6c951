"""Opens reports in a headless Chromium: report_test.py WRITE_REPORT PACECAR [unittest flags].

Exit code 77 where there is no Chromium.
"""

import colorsys
import copy
import json
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import chromium
import report_sample

WRITE_REPORT = ""
PACECAR = ""
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
SMOKE = BENCH / "plans/smoke.toml"
SKIPPED = 77
ALL_PLOTS = ["differences", "repetitions", "fct", "slowdown", "queue", "rates", "limits",
             "fairness", "links"]

# For each plot: how many pixels of its canvases have a colour (not grey, which axes have), how many
# such colours, and how many marks its SVG has.
MEASURE = """
[...document.querySelectorAll("figure[data-plot]")].map((figure) => {
  const colours = new Set();
  let pixels = 0;
  for (const canvas of figure.querySelectorAll("canvas")) {
    const context = canvas.getContext("2d");
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    for (let i = 0; i < data.length; i += 4) {
      const red = data[i], green = data[i + 1], blue = data[i + 2];
      const vividness = Math.max(red, green, blue) - Math.min(red, green, blue);
      if (data[i + 3] < 40 || vividness < 40) continue;
      pixels += 1;
      colours.add((red << 16) + (green << 8) + blue);
    }
  }
  return { name: figure.dataset.plot, pixels, colours: colours.size,
           marks: figure.querySelectorAll("svg circle").length };
})
"""
# The opaque pixels of the first canvas of a plot: how many of each "red,green,blue".
COLOURS = """
(() => {
  const canvas = document.querySelector("[data-plot=NAME] canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colours = {};
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] !== 255) continue;
    const colour = `${data[i]},${data[i + 1]},${data[i + 2]}`;
    colours[colour] = (colours[colour] ?? 0) + 1;
  }
  return colours;
})()
"""
# Before a page's own scripts: each canvas keeps the boxes of the texts of its last drawing.
RECORD_TEXTS = """
(() => {
  const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    this.canvas.texts = [];
    return clearRect.apply(this, area);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, room = Infinity) {
    const box = this.measureText(text);
    const { a, b, c, d, e, f } = this.getTransform();
    const right = Math.min(box.actualBoundingBoxRight, room - box.actualBoundingBoxLeft);
    const ends = [[x - box.actualBoundingBoxLeft, y - box.actualBoundingBoxAscent],
                  [x + right, y + box.actualBoundingBoxDescent]]
      .map(([u, v]) => [a * u + c * v + e, b * u + d * v + f]);
    const [left, top] = [0, 1].map((axis) => Math.min(ends[0][axis], ends[1][axis]));
    const [far, low] = [0, 1].map((axis) => Math.max(ends[0][axis], ends[1][axis]));
    (this.canvas.texts ??= []).push({ text: String(text), left, top, right: far, bottom: low });
    return fillText.call(this, text, x, y, ...(room === Infinity ? [] : [room]));
  };
})();
"""
# The texts of every drawing with their boxes: [[{text, left, top, right, bottom}]].
TEXTS = """
[...document.querySelectorAll("figure canvas, figure svg")].map((drawing) =>
  drawing.texts ?? [...drawing.querySelectorAll("text")].map((node) => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return { text: node.firstChild.textContent, left, top, right, bottom };
  }))
"""


def overlapping(texts):
    """Pairs of texts whose boxes share more than a pixel's width and height."""
    return [(one["text"], other["text"]) for one, other in itertools.combinations(texts, 2)
            if all(min(one[end], other[end]) - max(one[begin], other[begin]) > 1
                   for begin, end in (("left", "right"), ("top", "bottom")))]


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.browser = cls.enterClassContext(chromium.Browser())
        cls.browser.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD_TEXTS)

    def show(self, data, **size):
        source = self.folder / "data.json"
        source.write_text(json.dumps(data), encoding="utf-8")
        self.path = self.folder / "report.html"
        subprocess.run([WRITE_REPORT, source, self.path], check=True)
        self.browser.open(self.path, **size)

    def text(self, selector="main"):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def plots(self):
        return {plot["name"]: plot for plot in self.browser.evaluate(MEASURE)}

    def colours(self, plot):
        return self.browser.evaluate(COLOURS.replace("NAME", plot))

    def key(self, name, code):
        for kind in ("keyDown", "keyUp"):
            self.browser.call("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                              windowsVirtualKeyCode=code)
        self.browser.settle()

    def texts(self):
        return self.browser.evaluate(TEXTS)

    def assert_readable(self):
        for texts in self.texts():
            self.assertEqual(overlapping(texts), [])

    def assert_quiet(self):
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual(self.browser.requests, [f"file://{self.path}"])

    def assert_drawn(self, plots, names):
        self.assertEqual(list(plots), names)
        for name in names:
            plot = plots[name]
            if name in ("differences", "repetitions"):
                self.assertGreater(plot["marks"], 0, name)
            else:
                self.assertGreater(plot["pixels"], 300, name)


class WholePage(ReportTest):
    def test_every_plot_is_drawn_without_errors_or_requests(self):
        self.show(report_sample.simulation())
        plots = self.plots()
        self.assert_drawn(plots, ALL_PLOTS)
        self.assertEqual(plots["differences"]["marks"], 2)    # an arm in two combinations
        self.assertEqual(plots["repetitions"]["marks"], 6)    # two arms, three seeds
        self.assertGreater(plots["links"]["colours"], 20)     # links differ
        self.assert_quiet()

    def test_provenance_and_thresholds_come_before_the_plots(self):
        data = report_sample.simulation()
        data["thresholds"] = [report_sample.threshold("one that holds", True, 665.0),
                              report_sample.threshold("one that does not", False, 800.0),
                              {**report_sample.threshold("one over some", False, 665.0),
                               "undone": 1}]
        data["runs"][3].update(ok=False, error="it ended by signal 6", metrics={})
        data["runs"][4].update(error="3 of 4 flows were not done")
        data["undone"] = "1 of 12 runs failed, 1 did not finish"
        self.show(data)
        text = self.text()
        order = ["made up", "nscc (baseline)", "3: 1, 2, 3", "Runs",
                 "pacecar ab made_up.toml", "0123abc", "1 of 12 runs failed, 1 did not finish.",
                 "it ended by signal 6", "3 of 4 flows were not done",
                 "1 of 3 thresholds missed, 1 over runs that failed or did not finish",
                 "one that does not", "668 within 5%", "runs not done", "one that holds",
                 "Differences", "Flow completion times"]
        places = [text.find(words) for words in order]
        self.assertNotIn(-1, places, list(zip(order, places)))
        self.assertEqual(places, sorted(places))
        self.assert_quiet()

    def test_program_runs_have_their_repetitions_and_no_plots_of_flows(self):
        self.show(report_sample.programs())
        plots = self.plots()
        self.assert_drawn(plots, ["differences", "repetitions"])
        self.assertEqual(plots["repetitions"]["marks"], 20)
        self.assertIn("The plan sets no thresholds.", self.text())
        self.assert_quiet()

    def test_one_arm_has_nothing_to_compare(self):
        self.show(report_sample.simulation(arms=("pace",), seeds=(5,)))
        self.assert_drawn(self.plots(), ALL_PLOTS[1:])
        self.assertIn("There is nothing to compare.", self.text())
        self.assert_quiet()

    def test_series_that_were_not_recorded_leave_their_plots_out(self):
        data = report_sample.simulation()
        for run in data["runs"]:
            if run["detail"]:
                run["detail"].update(queue=None, fairness=None, limits=[], links=[])
        self.show(data)
        self.assert_drawn(self.plots(), ["differences", "repetitions", "fct", "slowdown", "rates"])
        self.assert_quiet()

    def test_hundreds_of_flows_and_many_arms_are_drawn(self):
        arms = tuple(f"arm {index}" for index in range(9))
        self.show(report_sample.simulation(arms=arms, flows=300, samples=100))
        self.assert_drawn(self.plots(), ALL_PLOTS)
        rates = self.text("[data-plot=rates]")
        self.assertIn("Of more than 16 flows, percentiles at each time", rates)
        self.assertEqual(rates.count("90th percentile"), 9)
        self.assert_quiet()

    def test_sixteen_flows_have_a_line_each(self):
        self.show(report_sample.simulation(flows=16, samples=100))
        self.assertIn("flow 15: host 15 > host 0", self.text("[data-plot=rates]"))

    def test_the_combination_in_which_arms_differ_most_is_shown_first(self):
        data = report_sample.simulation()
        data["comparisons"][-1]["arm_mean"] *= 9
        self.show(data)
        self.assertIn("Differences \u00b7 matrix = perm128", self.text())
        self.assertEqual(self.browser.evaluate("document.querySelector('select').value"), "1")

    def test_identical_arms_are_named_once_and_marked(self):
        data = report_sample.simulation(arms=("nscc", "pace", "swift"))
        data["identical"] = [{"arms": ["pace", "swift"], "text": "'pace' and 'swift' are equal"}]
        for cells in (data["cells"][:3], data["cells"][3:]):
            cells[2]["fct_cdf_us"] = cells[1]["fct_cdf_us"]
        self.show(data)
        self.assertEqual(self.text().count("'pace' and 'swift' are equal."), 1)
        self.assertIn("swift (= pace)", self.text(".facts"))
        self.assertIn("swift (= pace)", self.text("[data-plot=fct] .u-legend"))
        self.assertNotIn("pace (=", self.text())
        self.assertNotIn("(=", self.text("[data-plot=slowdown]"))

    def test_values_of_more_than_two_decades_have_a_logarithmic_axis(self):
        data = report_sample.simulation()
        self.show(data)
        self.assertNotIn("logarithmic", self.text("[data-plot=repetitions]"))
        for run in data["runs"][:3]:
            run["metrics"]["finish_us"] /= 1000
        self.show(data)
        self.assertIn("logarithmic", self.text("[data-plot=repetitions]"))
        places = self.browser.evaluate(
            "[...document.querySelectorAll('[data-plot=repetitions] circle')]"
            ".map((dot) => Number(dot.getAttribute('cx')))")
        self.assertGreater(max(places[:3]) - min(places[:3]), 0.5)  # they stay apart

    def test_colours_of_arms_have_different_hues(self):
        text = (BENCH / "ab/report/page.css").read_text("utf-8")
        found = [colorsys.rgb_to_hls(*(part / 255 for part in bytes.fromhex(colour)))
                 for colour in re.findall(r"--arm-\d: #(\w{6});", text)]
        for colours in (found[:8], found[8:]):
            hues = sorted(360 * hue for hue, _, saturation in colours if saturation > 0.1)
            self.assertEqual(len(hues), 7)  # and a grey
            for one, other in itertools.pairwise([*hues, hues[0] + 360]):
                self.assertGreater(other - one, 15, hues)

    def test_the_limits_of_a_flow_are_drawn_and_named(self):
        self.show(report_sample.simulation())
        words = self.text("[data-plot=limits]").replace("\n", " ")
        self.assertIn("flow 0: host 0 > host 0 is limited by", words)
        for reason in ("receiver's grant 50%", "network 40%", "nothing to send 10%"):
            self.assertIn(reason, words)
        drawn = self.colours("limits")
        strip = [drawn.get(colour, 0) for colour in ("0,103,168", "200,80,10", "213,218,224")]
        self.assertGreater(min(strip), 200, strip)    # each reason has its colour
        self.assertGreater(strip[0] + strip[1], 5 * strip[2])
        self.assert_quiet()

    def test_series_without_values_have_no_line(self):
        data = report_sample.simulation(arms=("fixed",))
        for run in data["runs"]:
            for flow in run["detail"]["limits"] if run["detail"] else []:
                flow.update(grant=[], core=[], limited_by=[[0, "line"]])
        self.show(data)
        legend = self.text("[data-plot=limits] .u-legend")
        self.assertIn("may send", legend)
        self.assertNotIn("grant", legend)
        self.assertNotIn("core", legend)
        self.assertIn("own link 100%", self.text("[data-plot=limits]"))
        self.assert_quiet()

    def test_an_experiment_without_good_runs_lists_the_errors(self):
        data = report_sample.programs() | {"metrics": [], "comparisons": []}
        for run in data["runs"]:
            run.update(ok=False, error="it ended by signal 6", metrics={})
        for cell in data["cells"]:
            cell["metrics"] = {}
        self.show(data)
        self.assertEqual(self.plots(), {})
        self.assertEqual(self.text().count("it ended by signal 6"), 20)
        self.assert_quiet()

    def test_the_table_of_differences_fits_a_screen_of_1280_pixels(self):
        data = report_sample.simulation(seeds=(1, 2))
        for comparison in data["comparisons"]:
            comparison.update(verdict="no difference shown", better=None, low=-123456.789,
                              high=234567.891, difference=-56789.12, ratio=1.2345)
        self.show(data, width=1280, height=900)
        box = "document.querySelector('[aria-label=\"Paired differences\"]')"
        wide, shown, names = self.browser.evaluate(
            f"[{box}.scrollWidth, {box}.clientWidth,"
            f" Math.max(...[...{box}.querySelectorAll('.above th')].map((th) => th.offsetHeight))]")
        self.assertLessEqual(wide, shown)
        self.assertLess(names, 45, "a heading takes more than one line")

    def test_large_ratios_are_factors_not_percentages(self):
        data = report_sample.simulation()
        data["comparisons"][0]["ratio"] = 39.5
        data["thresholds"] = [{**report_sample.threshold("jain", True, 0.79), "deviation": 38.51}]
        self.show(data)
        self.assertIn("×39.5", self.text('[aria-label="Paired differences"]'))
        self.assertNotIn("3,851", self.text())

    def test_a_phone_does_not_scroll_the_page_sideways(self):
        arms = tuple(f"an arm whose name is too long for any phone {number}" for number in range(9))
        self.show(report_sample.simulation(arms=arms), width=390, height=800)
        self.assert_drawn(self.plots(), ALL_PLOTS)
        self.assert_readable()
        self.assertLessEqual(
            self.browser.evaluate("document.documentElement.scrollWidth"), 390)
        self.assert_quiet()


class RealExperiment(ReportTest):
    def test_the_report_of_the_smoke_plan_is_complete(self):
        out = self.folder / "smoke"
        subprocess.run([PACECAR, "ab", SMOKE, "--out", out], check=True, capture_output=True)
        self.path = out / "report.html"
        self.browser.open(self.path)
        # All flows of a workload are of one size, and in its first combination all pairs are equal.
        drawn = [name for name in ALL_PLOTS if name != "slowdown"]
        plots = self.plots()
        self.assert_drawn(plots, drawn)
        self.assertEqual(plots["repetitions"]["marks"], 4)  # two arms, two seeds
        text = self.text()
        for words in ("smoke", "thresholds are met", "finish of the last flow",
                      "leaf 0 > host 0", "0: 1 > 0"):
            self.assertIn(words, text)
        for word in ("undefined", "NaN", "[object"):
            self.assertNotIn(word, text)
        self.assertLess(self.path.stat().st_size, 400_000)
        self.assert_quiet()


class Prediction(ReportTest):
    def test_small_sizes_are_seen_on_a_phone(self):
        self.path = self.folder / "prediction.html"
        done = subprocess.run([PACECAR, "predict", "--hosts", "64", "--op", "allreduce", "--sizes",
                               "8:16G:x4", "--html", self.path], check=True, capture_output=True,
                              text=True)
        self.browser.open(self.path, width=390, height=800)
        self.assert_readable()
        drawn, = self.texts()
        words = [one["text"] for one in drawn]
        self.assertIn("bus bandwidth, GB/s, logarithmic", words)
        self.assertIn("10 KB", words)
        self.assert_quiet()
        # The best of each size follow the table once more.
        rows, _, best = done.stdout.partition("# best of each size\n")
        chosen = ["#" + row[1:] for row in rows.splitlines() if " * " in row]
        self.assertGreater(len(chosen), 10)
        self.assertEqual(best.splitlines(), chosen)


class Names(ReportTest):
    EVIL = "</script><script>window.harm = 1</script><img src=http://example.com>&amp;<!--{{data}}"

    def test_markup_in_names_is_shown_as_text(self):
        text = json.dumps(report_sample.simulation())
        for name in ("made up", "Nothing ran.", "pace", "inc32", "matrix", "leaf 0", "goodput"):
            text = text.replace(name, name + self.EVIL)
        data = json.loads(text.replace("goodput" + self.EVIL + "_gbps", "goodput_gbps"))
        data["thresholds"] = [report_sample.threshold(self.EVIL, False, None)]
        data["runs"][-1].update(ok=False, error=self.EVIL)
        self.show(data)
        self.assert_drawn(self.plots(), ALL_PLOTS)
        self.assertIn(self.EVIL, self.text("h1"))
        self.assertIsNone(self.browser.evaluate("window.harm ?? null"))
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img').length"), 0)
        self.assert_quiet()

    def test_letters_of_any_script_are_shown(self):
        name = "caf\u00e9 \u2028 \u7f51\u7edc \U0001f3ce"
        self.show(report_sample.programs() | {"name": name})
        self.assertEqual(self.browser.evaluate("document.querySelector('h1').textContent"), name)


class Reader(ReportTest):
    def test_the_keyboard_chooses_combination_metric_and_links(self):
        self.show(report_sample.simulation())
        self.assertIn("Differences · matrix = inc32", self.text())
        for select in range(4):
            self.browser.evaluate(f"document.querySelectorAll('select')[{select}].focus()")
            self.key("ArrowDown", 40)
        after = self.text()
        self.assertIn("Differences · matrix = perm128", after)
        self.assertIn("goodput, matrix = perm128: a dot for each run", after)
        self.assertIn("largest queue: 0", self.text("[data-plot=links]"))
        self.assertIn("flow 1: host 1 > host 0 is limited", self.text("[data-plot=limits]"))
        self.assert_drawn(self.plots(), ALL_PLOTS)
        self.assert_quiet()

    def test_the_keyboard_hides_a_line(self):
        self.show(report_sample.simulation())
        both = self.plots()["fct"]["pixels"]
        self.browser.evaluate("document.querySelector('[data-plot=fct] th[role=button]').focus()")
        self.key("Enter", 13)
        one = self.plots()["fct"]["pixels"]
        self.assertLess(one, both)
        self.assertGreater(one, 0)

    def test_colours_are_dark_at_night_and_light_on_paper(self):
        self.show(report_sample.simulation())
        light = self.colours("fct")
        self.addCleanup(self.browser.call, "Emulation.setEmulatedMedia", features=[])
        self.browser.call("Emulation.setEmulatedMedia",
                          features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.browser.settle()
        dark = self.colours("fct")
        self.assertIn("0,103,168", light)
        self.assertIn("85,178,242", dark)
        self.assertNotIn("0,103,168", dark)
        self.browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.assertIn("0,103,168", self.colours("fct"))
        self.browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertIn("85,178,242", self.colours("fct"))
        self.assert_quiet()

    def test_the_link_under_the_pointer_is_shown(self):
        self.show(report_sample.simulation())
        place = self.browser.evaluate("""(() => {
            const canvas = document.querySelector("[data-plot=links] canvas");
            canvas.scrollIntoView();
            const { left, top } = canvas.getBoundingClientRect();
            return { x: left + 115, y: top + 30 };
        })()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        self.assertRegex(self.text("[data-plot=links] .readout"), r"host 0 > leaf 0: [\d.]+%")


class Damage(ReportTest):
    def broken(self):
        good = report_sample.simulation()
        for name, change in {
                "is of version 2": lambda data: data.update(schema_version=2),
                'has no list "runs"': lambda data: data.pop("runs"),
                "it holds no run": lambda data: data.update(cells=[]),
                "damaged or of another version": lambda data: data["cells"][0].pop("metrics"),
        }.items():
            data = copy.deepcopy(good)
            change(data)
            yield name, data
        yield "damaged or of another version", ["no object"]
        yield "damaged or of another version", None

    def test_damaged_data_shows_a_message_instead_of_a_blank_page(self):
        for words, data in self.broken():
            with self.subTest(words):
                self.show(data)
                self.assertIn(words, self.text())
                self.assertIn("Make it again with the same plan", self.text())
                self.assert_quiet()

    def test_requests_and_errors_of_a_page_are_noticed(self):
        self.show(report_sample.programs())
        self.browser.evaluate("fetch('http://example.com/').catch(() => 0)")
        self.assertNotEqual(self.browser.complaints, [])
        self.browser.evaluate("setTimeout(() => { throw new Error('loud') })")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 1))")
        self.assertIn("loud", self.browser.complaints[-1])


if __name__ == "__main__":
    if not chromium.installed():
        print("chromium is not installed (package chromium)")
        sys.exit(SKIPPED)
    WRITE_REPORT = sys.argv.pop(1)
    PACECAR = sys.argv.pop(1)
    unittest.main()
