// What each plot of the report shows, from the view: the experiment and what the reader chose.
// Each function gives a plot() of page.js, or null where there is nothing to show.

const POINTS = 1000;          // of a line, at most
const NAMED_FLOWS = 16;       // of more, percentiles are shown
const PERCENTILES = [["fastest", 1], ["90th percentile", 0.9], ["median", 0.5],
                     ["10th percentile", 0.1], ["slowest", 0]];
const REASONS = {  // for a flow's rate, with their colours
  grant: { label: "receiver's grant", colour: "arm-0" },
  line: { label: "own link", colour: "arm-2" },
  network: { label: "network", colour: "arm-1" },
  window: { label: "window", colour: "arm-5" },
  budget: { label: "budget", colour: "arm-3" },
  host: { label: "hosts", colour: "arm-4" },
  application: { label: "nothing to send", colour: "line" },
};
const LINKS = [
  { name: "utilisation", label: "utilisation", unit: "%", size: 100, most: 100 },
  { name: "queue_max_bytes", label: "largest queue", unit: "B", size: 1 },
  { name: "marked", label: "packets marked", unit: "", size: 1 },
  { name: "trimmed", label: "packets trimmed", unit: "", size: 1 },
  { name: "dropped", label: "packets dropped", unit: "", size: 1 },
  { name: "paused_us", label: "time paused", unit: "us", size: 1 },
];

// --- of the chosen metric ------------------------------------------------------------------------

function intervals(view) {
  const found = view.experiment.comparisons.filter((comparison) =>
    comparison.metric === view.metric.name && comparison.low !== null);
  if (found.length === 0) return null;
  const relative = found.every((comparison) => comparison.baseline_mean !== 0);
  const rows = view.experiment.combinations.flatMap((key) => {
    const here = found.filter((comparison) => comparison.key === key);
    const head = key && here.length > 0 ? [{ heading: key }] : [];
    return [...head, ...here.map((comparison) => intervalRow(comparison, relative))];
  });
  const unit = relative ? "% of the baseline's mean" : view.metric.unit;
  const wish = view.metric.better ? `, ${view.metric.better} is better` : "";
  return plot("differences", "Differences with their 95% intervals",
              `${view.metric.label}: each arm minus ${view.experiment.data.baseline}${wish}. An ` +
              "interval that spans the dashed line shows no difference.",
              (host) => rowPlot(host, { rows, zero: true, label: `difference (${unit})`,
                                        describe: `Differences of ${view.metric.label}` }));
}

function intervalRow(comparison, relative) {
  const size = relative ? Math.abs(comparison.baseline_mean) / 100 : 1;
  const [low, high, centre] = [comparison.low, comparison.high, comparison.difference]
    .map((value) => value / size);
  return { name: comparison.arm.name, colour: armColour(comparison.arm.index),
           interval: [low, high], centre,
           note: `${signed(centre, 3)}${relative ? "%" : ""}, n = ${comparison.n}` };
}

function repetitions(view) {
  const cells = cellsOf(view);
  const name = view.metric.name;
  const unit = unitFor(view.metric.unit, largest(cells.map((cell) => cell.metrics[name]?.mean)));
  const rows = cells.map((cell) => {
    const dots = cell.runs.filter((run) => Number.isFinite(run.metrics[name])).map((run) => {
      const x = run.metrics[name] / unit.size;
      return { x, title: `${view.experiment.repeated} ${run.seed}: ${withUnit(x, unit.name)}` };
    });
    const centre = dots.length > 0 ? average(dots.map((dot) => dot.x)) : null;
    const note = dots.length > 0 ? `mean ${figure(centre)}, n = ${dots.length}` : "not measured";
    return { name: cell.arm.name, colour: armColour(cell.arm.index), dots, centre, note };
  });
  if (rows.every((row) => row.dots.length === 0)) return null;
  return plot("repetitions", "Every run", `${[view.metric.label, view.combination].filter(Boolean)
                .join(", ")}: a dot for each run, a bar at the mean.`,
              (host) => rowPlot(host, { rows, label: titled(view.metric.label, unit.name),
                                        describe: `${view.metric.label} of every run` }));
}

// --- of the flows and the fabric -----------------------------------------------------------------

function completionTimes(view) {
  const cells = cellsOf(view).filter((cell) => cell.fct_cdf_us);
  if (cells.length === 0) return null;
  const unit = unitFor("us", largest(cells.map((cell) => cell.fct_cdf_us.x.at(-1))));
  const lines = cells.map((cell) => ({
    name: cell.arm.name, colour: armColour(cell.arm.index), width: 2,
    dash: armDash(cell.arm.index),
    x: cell.fct_cdf_us.x.map((time) => time / unit.size), y: cell.fct_cdf_us.y }));
  const label = `flow completion time (${unit.name}, logarithmic)`;
  return plot("fct", "Flow completion times", "Of all seeds' flows that finished, the share done " +
              "within a time.",
              (host) => lineChart(host, {
                lines, stepped: true, describe: "Distribution of flow completion times",
                x: { label, unit: unit.name, log: true },
                y: { label: "share of flows", range: () => [0, 1.02] } }));
}

function slowdowns(view) {
  const cells = cellsOf(view).filter((cell) => cell.slowdown_by_size.length > 1);
  if (cells.length === 0) return null;
  const lines = cells.map((cell) => ({
    name: cell.arm.name, colour: armColour(cell.arm.index), width: 2,
    dash: armDash(cell.arm.index),
    x: cell.slowdown_by_size.map((size) => size.bytes_max),
    y: cell.slowdown_by_size.map((size) => size.p99) }));
  return plot("slowdown", "Slowdown by flow size", "99th percentile of completion time over that " +
              "of the same flow alone in the fabric.",
              (host) => lineChart(host, {
                lines, describe: "Slowdown by flow size",
                x: { label: "flow size (logarithmic)", unit: "B", log: true },
                y: { label: "slowdown, 99th percentile" } }));
}

function queues(view) {
  const busiest = detailsOf(view, "queue").map(({ arm, seed, detail }) => ({
    arm, seed, series: detail.queue }));
  if (busiest.length === 0) return null;
  const unit = unitFor("B", largest(busiest.map(({ series }) => largest(series.values))));
  const held = busiest.map(({ arm, series }) => ({
    arm, name: `${arm.name}: ${series.name}`, keep: "peak", size: unit.size, series }));
  return overTime("queue", "Queue over time",
                  `The switch port with the longest queue; seed ${busiest[0].seed}.`,
                  held, { label: `queue (${unit.name})` });
}

function fairness(view) {
  const found = detailsOf(view, "fairness");
  if (found.length === 0) return null;
  const held = found.map(({ arm, detail }) => ({
    arm, name: arm.name, keep: "mean", size: 1, series: detail.fairness }));
  return overTime("fairness", "Fairness over time", "Jain's index over the rates of the flows " +
                  `under way: 1 when all are equal; seed ${found[0].seed}.`, held,
                  { label: "Jain's index", range: () => [0, 1.02] });
}

// One line per arm: {arm, name, series, keep, size}.
function overTime(id, title, text, held, y) {
  const unit = unitFor("us", lastTime(held.map(({ series }) => series)));
  const lines = held.map(({ arm, name, series, keep, size }) => ({
    name, colour: armColour(arm.index), dash: arm.index < 8 ? [] : armDash(arm.index),
    ...scaled(thinned(series, POINTS, keep), unit.size, size) }));
  return plot(id, title, text, (host) => lineChart(host, {
    lines, describe: title, x: { label: `time (${unit.name})`, unit: unit.name }, y }));
}

function lastTime(series) {
  return largest(series.map((one) => one.values.length * one.interval_us));
}

function scaled({ x, y }, time, value) {
  return { x: x.map((t) => t / time), y: y.map((v) => v === null ? null : v / value) };
}

function rates(view) {
  const found = detailsOf(view, "rates");
  if (found.length === 0) return null;
  const all = found.flatMap(({ detail }) => detail.rates);
  const time = unitFor("us", lastTime(all));
  const top = largest(all.map((series) => largest(series.values)));
  const unit = unitFor("Gb/s", top);
  const draw = (host, { arm, detail }) => lineChart(host, {
    ...flowLines(arm, detail.rates, time.size, unit.size), height: 240,
    describe: `Rates of the flows of ${arm.name}`,
    x: { label: `time (${time.name})`, unit: time.name },
    y: { label: `rate (${unit.name})`, range: () => [0, top / unit.size * 1.05] } });
  const shown = found.some(({ detail }) => detail.rates.length > NAMED_FLOWS) ?
    `Of more than ${NAMED_FLOWS} flows, percentiles at each time` : "Each line is a flow";
  return plot("rates", "Rate over time", `${shown}; seed ${found[0].seed}.`,
              panels(found, draw));
}

// Few flows have a line each; of many there are percentiles, with a band around the median.
function flowLines(arm, series, time, rate) {
  const lines = series.map((one, index) => ({
    name: one.name, colour: armColour(index), dash: index < 8 ? [] : armDash(index),
    ...scaled(thinned(one, POINTS, "mean"), time, rate) }));
  if (lines.length <= NAMED_FLOWS) return { lines };
  const longest = lines.reduce((a, b) => b.x.length > a.x.length ? b : a);
  const sorted = longest.x.map((_, index) => lines.map((line) => line.y[index])
    .filter(Number.isFinite).sort((a, b) => a - b));
  const at = (values, share) => values[Math.round(share * (values.length - 1))] ?? null;
  return {
    lines: PERCENTILES.map(([name, share]) => ({
      name, colour: armColour(arm.index), width: share === 0.5 ? 2.5 : 1,
      dash: share % 1 === 0 ? [3, 3] : [], x: longest.x,
      y: sorted.map((values) => at(values, share)) })),
    bands: [{ series: [2, 4], fill: `${armColour(arm.index)}33` }] };  // the 90th to the 10th
}

// One flow of each arm: the one that the reader chose, or the arm's first.
function limits(view) {
  const found = detailsOf(view, "limits").map(({ detail, ...rest }) => ({
    ...rest, flow: detail.limits.find(({ name }) => name === view.flow) ?? detail.limits[0] }));
  if (found.length === 0) return null;
  const time = unitFor("us", lastTime(found.map(({ flow }) => flow.rate)));
  const top = largest(found.flatMap(({ flow }) =>
    [flow.rate.values, flow.allowed, flow.grant, flow.core].map(largest)));
  const unit = unitFor("Gb/s", top);
  const draw = (host, { arm, flow }) => {
    const strip = reasonSpans(flow, time.size);
    lineChart(host, {
      lines: limitLines(flow, time.size, unit.size), height: 240, strip,
      describe: `Why flow ${flow.name} of ${arm.name} is as fast as it is`,
      x: { label: `time (${time.name})`, unit: time.name },
      y: { label: `rate (${unit.name})`, range: () => [0, top / unit.size * 1.05] } });
    host.append(reasonKey(flow, strip));
  };
  return plot("limits", "Why a flow is as fast as it is", "Payload of one flow that arrives, " +
              "beside what it might send; the strip shows what limits it. " +
              `Seed ${found[0].seed}.`, panels(found, draw));
}

function limitLines(flow, time, rate) {
  const line = (name, values, style, interval = flow.interval_us) => values.length === 0 ? [] : [
    { name, width: 1.5, ...style, x: values.map((_, index) => index * interval / time),
      y: values.map((value) => value / rate) }];
  return [
    ...line("arrives", flow.rate.values, { colour: colour("ink"), width: 2 },
            flow.rate.interval_us),
    ...line("may send", flow.allowed, { colour: colour("quiet") }),
    ...line("grant", flow.grant, { colour: colour(REASONS.grant.colour), dash: [9, 4] }),
    ...line("core", flow.core, { colour: colour(REASONS.network.colour), dash: [3, 3] })];
}

function reasonSpans(flow, time) {
  const end = lastTime([flow.rate]) / flow.interval_us;
  return flow.limited_by.map(([begin, reason], index) => ({
    from: begin * flow.interval_us / time,
    to: (flow.limited_by[index + 1]?.[0] ?? end) * flow.interval_us / time,
    reason, colour: colour(REASONS[reason].colour), text: REASONS[reason].label }));
}

// "0: 1 > 0 is limited by [] receiver's grant 93%, [] nothing to send 7%"
function reasonKey(flow, spans) {
  const length = (some) => some.reduce((sum, { from, to }) => sum + to - from, 0);
  const shares = [...grouped(spans, ({ reason }) => reason)]
    .map(([reason, own]) => ({ reason, share: length(own) / length(spans) }))
    .sort((a, b) => b.share - a.share);
  return element("p", { class: "reasons" }, `${flow.name} is limited by`,
    ...shares.map(({ reason, share }) => element("span", {},
      swatch(`var(--${REASONS[reason].colour})`),
      `${REASONS[reason].label} ${figure(100 * share, 2)}%`)));
}

function links(view) {
  const found = detailsOf(view, "links");
  if (found.length === 0) return null;
  const { name, label, unit: raw, size, most } = view.links;
  const values = found.flatMap(({ detail }) => detail.links.map((link) => link[name]));
  const greatest = most ?? largest(values);
  const unit = unitFor(raw, greatest);
  const words = (value) => withUnit(value / unit.size, unit.name);
  const draw = (host, { arm, detail }) => heatMap(host, {
    blocks: linkBlocks(detail.links, name, size), most: greatest,
    readout: (cell) => `${cell.name}: ${words(cell.value)}`,
    describe: `Links of the fabric under ${arm.name}: ${label}` });
  const shown = plot("links", "Links", `Every link of the fabric; seed ${found[0].seed}. Rows ` +
                     "are nodes, cells their links in the order of the other ends.",
                     panels(found, draw));
  shown.frame.querySelector("figcaption").append(
    element("p", { class: "scale" }, `${label}: 0`, element("i"), words(greatest)));
  return shown;
}

// Links by the kinds of node that they join ("leaf > spine"); a row is a node of the scarcer kind.
function linkBlocks(all, name, size) {
  const kind = (node) => node.replace(/[\s\d.:/-]+/g, " ").trim();
  const byKinds = grouped(all, (link) => `${kind(link.from)} > ${kind(link.to)}`);
  return [...byKinds].map(([title, members]) => {
    const [from, to] = ["from", "to"].map((end) => grouped(members, (link) => link[end]));
    const [rows, other] = from.size <= to.size ? [from, "to"] : [to, "from"];
    const cell = (link) => ({ name: `${link.from} > ${link.to}`, value: (link[name] ?? 0) * size });
    return { title, note: columnNote([...rows.values()], other),
             rows: [...rows].map(([node, own]) => ({ name: node, cells: own.map(cell) })) };
  });
}

// What the columns of a block are, where they are the same in each row.
function columnNote(rows, other) {
  const ends = rows.map((links) => links.map((link) => link[other]));
  const same = ends.every((row) => row.join() === ends[0].join());
  return same && ends[0].length > 1 ? `${ends[0][0]} … ${ends[0].at(-1)}` : "";
}

function grouped(items, keyFor) {
  const groups = new Map();
  for (const item of items) {
    const key = keyFor(item);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return groups;
}
