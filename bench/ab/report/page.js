// The page: what was compared, the verdict, and the tables and plots of one combination of factors
// and one metric, which the reader chooses.

// --- the data ------------------------------------------------------------------------------------

function readData() {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.schema_version !== 1) {
    throw new Error(`its data is of version ${data.schema_version}, and this page reads version 1`);
  }
  for (const list of ["arms", "factors", "seeds", "metrics", "cells", "runs", "comparisons",
                      "thresholds", "identical"]) {
    if (!Array.isArray(data[list])) throw new Error(`its data has no list "${list}"`);
  }
  if (data.cells.length === 0) throw new Error("it holds no run");
  return data;
}

function keyOf(data, factors) {
  return data.factors.map((factor) => `${factor.name} = ${factors[factor.name]}`).join(", ");
}

// The experiment as the page asks for it: arms with their colours, combinations in the order of
// the runs, the cells of one combination in the order of the arms.
function experimentOf(data) {
  const arms = data.arms.map((arm, index) => ({ ...arm, index }));
  const order = new Map(arms.map((arm) => [arm.name, arm]));
  const runs = new Map(data.runs.map((run) => [run.index, run]));
  const cells = data.cells.map((cell) => ({
    ...cell, arm: order.get(cell.arm), key: keyOf(data, cell.factors),
    runs: cell.runs.map((index) => runs.get(index)) }));
  return {
    data, arms, cells, metrics: data.metrics,
    repeated: data.kind === "programs" ? "repetition" : "seed",
    combinations: [...new Set(cells.map((cell) => cell.key))],
    flows: explainedFlows(data.runs),
    comparisons: data.comparisons.map((comparison) => ({
      ...comparison, arm: order.get(comparison.arm), key: keyOf(data, comparison.factors) })),
  };
}

// The combination in which the arms differ most, over all metrics that are compared.
function mostEventful(combinations, comparisons) {
  const contrast = ({ arm_mean: ours, baseline_mean: theirs }) =>
    Math.abs(ours - theirs) / (Math.max(Math.abs(ours), Math.abs(theirs)) || 1);
  const total = (key) => comparisons.filter((one) => one.key === key)
                                    .reduce((sum, one) => sum + contrast(one), 0);
  return combinations.reduce((a, b) => total(b) > total(a) ? b : a);
}

// The names of the flows of which the data says why they are as fast as they are.
function explainedFlows(runs) {
  return [...new Set(runs.flatMap((run) => (run.detail?.limits ?? []).map(({ name }) => name)))];
}

function cellsOf(view) {
  return view.experiment.cells.filter((cell) => cell.key === view.combination)
                              .sort((a, b) => a.arm.index - b.arm.index);
}

// {arm, detail, seed} of each cell that has `part` of a run's detail.
function detailsOf(view, part) {
  return cellsOf(view).flatMap((cell) => {
    const run = cell.runs.find((candidate) => candidate.detail);
    const held = run?.detail[part];
    return held && held.length !== 0 ? [{ arm: cell.arm, seed: run.seed, detail: run.detail }] : [];
  });
}

// --- what was compared ---------------------------------------------------------------------------

function header({ data, arms, repeated }) {
  const { provenance } = data;
  const machine = [provenance.host, provenance.cpu,
                   provenance.cpus && `${provenance.cpus} CPUs`, provenance.kernel,
                   provenance.compiler];
  return element("header", {},
    element("h1", {}, data.name),
    element("p", { class: "quiet" }, data.description),
    element("dl", { class: "facts" },
      ...fact("Arms", element("ul", {}, ...arms.map((arm) => armLine(arm, data)))),
      ...data.factors.flatMap((factor) => fact(factor.name, factor.values.join("; "))),
      ...fact(repeated === "seed" ? "Seeds" : "Repetitions",
              `${data.seeds.length}: ${shortList(data.seeds)}`),
      ...fact("Runs", String(data.runs.length)),
      ...fact("Command", code(provenance.command_line)),
      ...fact("Pacecar", [provenance.version, provenance.commit].filter(Boolean).join(", commit ")),
      ...fact("Date", provenance.date),
      ...fact("Machine", machine.filter(Boolean).join(", ")),
      ...fact("Environment", code(Object.entries(provenance.environment ?? {})
                                        .map((pair) => pair.join("=")).join(" ")))));
}

function shortList(items) {
  return items.length <= 12 ? items.join(", ") : `${items[0]}, ${items[1]}, … ${items.at(-1)}`;
}

function armLine(arm, { baseline, identical }) {
  const first = identical.find(({ arms }) => arms.includes(arm.name))?.arms[0] ?? arm.name;
  const role = (arm.name === baseline ? " (baseline)" : "") +
               (first === arm.name ? "" : ` (= ${first})`);
  const mark = swatch(`var(--arm-${arm.index % 8})`);
  return element("li", {}, mark, element("strong", {}, arm.name), `${role} `,
                 code(arm.settings) ?? "");
}

// --- verdict -------------------------------------------------------------------------------------

function verdict({ data }) {
  const undone = data.runs.filter((run) => run.error);
  const section = element("section", {}, element("h2", {}, "Verdict"));
  if (undone.length > 0) {
    section.append(verdictLine("bad", `✗ ${data.undone}.`), undoneTable(undone));
  }
  section.append(thresholdLine(data.thresholds));
  if (data.thresholds.length > 0) section.append(thresholdTable(data.thresholds));
  section.append(...data.identical.map(({ text }) => verdictLine("", `${text}.`)));
  return section;
}

function verdictLine(kind, text) {
  return element("p", { class: `verdict ${kind}` }, element("strong", {}, text));
}

function thresholdLine(thresholds) {
  const total = thresholds.length;
  const undone = thresholds.filter((threshold) => threshold.undone > 0).length;
  const missed = thresholds.filter((threshold) => !threshold.passed).length - undone;
  const all = total === 1 ? "The threshold is" : `All ${total} thresholds are`;
  if (total === 0) return verdictLine("", "The plan sets no thresholds.");
  if (missed + undone === 0) return verdictLine("good", `✓ ${all} met.`);
  const open = undone > 0 ? `, ${undone} over runs that failed or did not finish` : "";
  return verdictLine("bad", `✗ ${missed} of ${total} thresholds missed${open}.`);
}

function thresholdTable(thresholds) {
  const columns = [...plain("Threshold", "Verdict", "Expected"),
                   ...numbers("Reference", "Measured", "Off by")];
  const missedFirst = [...thresholds].sort((a, b) => Number(a.passed) - Number(b.passed));
  return table("Thresholds", columns, missedFirst.map((threshold) => ({
    name: threshold.text,
    rows: [[threshold.passed ? good("pass") : bad(threshold.undone ? "runs not done" : "missed"),
            ...plain(threshold.expected),
            ...numbers(figure(threshold.reference, 6), figure(threshold.measured, 6),
                       threshold.passed ? "–" : percent(threshold.deviation))]] })));
}

function undoneTable(undone) {
  return table("Runs that are not done", plain("Run", "Seed", "Why"), undone.map((run) => ({
    name: `run ${run.index}${run.ok ? "" : ", failed"}`,
    rows: [plain(String(run.seed), run.error)] })));
}

// --- tables of the chosen combination ------------------------------------------------------------

function differences(view) {
  const here = view.experiment.comparisons.filter((one) => one.key === view.combination);
  const groups = [...grouped(here, (comparison) => comparison.metric)].map(([name, found]) => {
    const metric = view.experiment.metrics.find((candidate) => candidate.name === name);
    const unit = unitFor(metric.unit, largest(found.flatMap((comparison) => [
      Math.abs(comparison.baseline_mean), Math.abs(comparison.arm_mean)])));
    return { name: titled(metric.label, unit.name),
             rows: found.map((comparison) => differenceRow(comparison, unit.size)) };
  });
  if (groups.length === 0) {
    return section(view, "Differences", element("p", {}, "There is nothing to compare."));
  }
  const text = "Each arm minus the baseline, paired by seed or repetition: the mean difference " +
               "with its 95% bootstrap interval (t: Student's, of few pairs), Cohen's d (of six " +
               "pairs and more, and up to 10), and p adjusted by Holm's method for all " +
               "comparisons. The words follow the interval, which is of one comparison alone, " +
               "and say so where the adjusted p is above 0.05.";
  const columns = [...plain("Arm", "In words"),
                   ...numbers("Baseline", "Arm's mean", "Difference", "95% interval", "Relative",
                              "d", "p (Holm)", "n")];
  return section(view, "Differences", element("p", { class: "quiet" }, text),
                 table("Paired differences", columns, groups));
}

function differenceRow(comparison, size) {
  const value = (raw) => raw === null ? null : raw / size;
  const kind = comparison.interval === "student" ? " (t)" : "";
  const interval = comparison.low === null ? "–"
    : `${signed(value(comparison.low))} to ${signed(value(comparison.high))}${kind}`;
  const ratio = comparison.ratio === null ? null : comparison.ratio - 1;
  return [...plain(comparison.arm.name), words(comparison),
          ...numbers(figure(value(comparison.baseline_mean)), figure(value(comparison.arm_mean)),
                     signed(value(comparison.difference)), interval, percent(ratio),
                     figure(comparison.cohens_d, 3), figure(comparison.p_holm, 3),
                     String(comparison.n))];
}

function words({ verdict: text, better }) {
  if (better === null) return { text, kind: "" };
  return better ? good(`${text}: better`) : bad(`${text}: worse`);
}

function good(text) {
  return { text: `✓ ${text}`, kind: "good" };
}

function bad(text) {
  return { text: `✗ ${text}`, kind: "bad" };
}

function figures(view) {
  const cells = cellsOf(view);
  const columns = [...plain("Metric"), ...numbers(...cells.map((cell) => cell.arm.name))];
  const groups = view.experiment.metrics.map((metric) => {
    const means = cells.map((cell) => cell.metrics[metric.name]?.mean);
    const unit = unitFor(metric.unit, largest(means));
    return { name: titled(metric.label, unit.name),
             rows: [numbers(...cells.map((cell) => summary(cell.metrics[metric.name], unit)))] };
  });
  const text = "Mean, and the least to the greatest where they differ.";
  return section(view, "Figures of each arm", element("p", { class: "quiet" }, text),
                 table("Figures of each arm", columns, groups));
}

function summary(metric, unit) {
  if (!metric) return "–";
  const [mean, low, high] = [metric.mean, metric.min, metric.max]
    .map((raw) => figure(raw / unit.size));
  return low === high ? mean : `${mean} (${low} to ${high})`;
}

// --- putting it together -------------------------------------------------------------------------

function section(view, title, ...parts) {
  const where = view.combination && ` · ${view.combination}`;
  const heading = element("h2", {}, title, element("span", { class: "quiet" }, where));
  return element("section", {}, heading, ...parts);
}

function panels(found, draw) {
  return (host) => {
    host.classList.add("panels");
    const bodies = found.map(({ arm }) => {
      const body = element("div");
      host.append(element("div", { class: "panel" },
                          element("h3", {}, swatch(`var(--arm-${arm.index % 8})`), arm.name),
                          body));
      return body;
    });
    found.forEach((one, index) => draw(bodies[index], one));
  };
}

function chooser(label, options, chosen, choose) {
  const select = element("select", {}, ...options.map((text, index) =>
    element("option", { value: index }, text)));
  select.value = chosen;
  select.addEventListener("change", () => choose(Number(select.value)));
  return element("label", {}, label, select);
}

function toolbar(view, redraw) {
  const { combinations, metrics, cells, flows } = view.experiment;
  const choose = (name, options) => (index) => { view[name] = options[index]; redraw(); };
  const choosers = [chooser("Metric", metrics.map((metric) => metric.label),
                            metrics.indexOf(view.metric), choose("metric", metrics))];
  if (combinations.length > 1) {
    choosers.unshift(chooser("Combination of factors", combinations,
                             combinations.indexOf(view.combination),
                             choose("combination", combinations)));
  }
  if (flows.length > 1) {
    choosers.push(chooser("Reasons of flow", flows, 0, choose("flow", flows)));
  }
  if (cells.some((cell) => cell.runs.some((run) => run.detail?.links?.length))) {
    choosers.push(chooser("Links show", LINKS.map((quantity) => quantity.label), 0,
                          choose("links", LINKS)));
  }
  return element("nav", { class: "toolbar", "aria-label": "What is shown" }, ...choosers);
}

function draw(view, body) {
  body.style.minHeight = `${body.offsetHeight}px`;  // the page keeps its place meanwhile
  const byMetric = [intervals(view), repetitions(view)].filter(Boolean);
  const ofRun = [completionTimes, slowdowns, queues, rates, limits, fairness, links]
    .map((make) => make(view)).filter(Boolean);
  const frames = (plots) => plots.map((one) => one.frame);
  const hint = element("p", { class: "quiet hint" }, "Drag across a plot to zoom, double-click " +
                       "to zoom out; click a name below it to hide its line.");
  body.replaceChildren(
    differences(view), ...frames(byMetric), figures(view),
    ...(ofRun.length > 0 ? [section(view, "Flows and fabric", hint, ...frames(ofRun))] : []));
  for (const one of [...byMetric, ...ofRun]) one.draw();
  body.style.minHeight = "";
}

function start(page) {
  const experiment = experimentOf(readData());
  const combination = mostEventful(experiment.combinations, experiment.comparisons);
  const view = { experiment, combination,
                 metric: experiment.metrics[0], links: LINKS[0], flow: experiment.flows[0] };
  const body = element("div");
  const redraw = () => orSayWhy(page, () => draw(view, body));
  document.title = `${experiment.data.name} · Pacecar`;
  page.replaceChildren(header(experiment), verdict(experiment));
  if (experiment.metrics.length === 0) return;  // no run came to an end
  page.append(toolbar(view, redraw), body);
  redraw();
  followPage(page, body, redraw);
}

// Damage may show at the start or only in what the reader chooses later.
function orSayWhy(page, action) {
  try {
    action();
  } catch (error) {
    const text = `The report is damaged or of another version: ${error.message}. Make it again ` +
                 "with the same plan, or read summary.json beside it.";
    page.replaceChildren(element("h1", {}, "This report cannot be shown"),
                         element("p", { class: "failure", role: "alert" }, text));
  }
}

const page = document.getElementById("page");
orSayWhy(page, () => start(page));
