// The matrix of all pairs as a heat map, what is out of line in words, and a table of the hosts.

function readMatrix() {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.schema_version !== 1) {
    throw new Error(`its data is of version ${data.schema_version}, and this page reads version 1`);
  }
  for (const list of ["hosts", "pairs", "outliers", "missed", "failures"]) {
    if (!Array.isArray(data[list])) throw new Error(`its data has no list "${list}"`);
  }
  return data;
}

// The pair of each sender and receiver; null: not tried.
function gridOf(data) {
  const grid = data.hosts.map(() => data.hosts.map(() => null));
  for (const pair of data.pairs) grid[pair.sender][pair.receiver] = pair;
  return grid;
}

function matrixHeader(data) {
  const { test, flags, quantity, median, hosts, pairs, date, seconds } = data;
  const measured = pairs.filter((pair) => pair.value !== null).length;
  const failed = pairs.length - measured;
  return element("header", {},
    element("h1", {}, `pacecar ${test} between ${hosts.length} hosts`),
    element("dl", { class: "facts" },
      ...fact("Shown", titled(quantity.name, quantity.unit)),
      ...fact("Median", median === null ? "" : withUnit(median, quantity.unit)),
      ...fact("Measured", `${measured} pairs${failed ? `, ${failed} failed` : ""}, in ` +
                          `${figure(seconds, 3)} s, --pairs ${data.pairs_mode}`),
      ...fact("Flags", code(flags.join(" "))),
      ...fact("Pacecar", data.version),
      ...fact("Date", date)));
}

function matrixVerdict(data) {
  const wrong = [...data.failures, ...data.missed, ...data.outliers];
  const good = wrong.length === 0;
  const line = good ? "No host and no pair is out of line." : "Failed or out of line:";
  return element("section", {}, element("h2", {}, "Verdict"),
    element("div", { class: `verdict ${good ? "good" : "bad"}` }, element("strong", {}, line),
            ...(good ? [] : [element("ul", {}, ...wrong.map((one) => element("li", {}, one)))])));
}

function isMarked(data, sender, receiver) {
  return data.slow_pairs.some((pair) => pair.sender === sender && pair.receiver === receiver) ||
         data.slow_hosts.some(({ host, sends, receives }) => (sends && host === sender) ||
                                                             (receives && host === receiver));
}

function cellOf(data, grid, sender, receiver) {
  const name = `${data.hosts[sender].name} → ${data.hosts[receiver].name}`;
  if (sender === receiver) return { name: data.hosts[sender].name, value: undefined };
  const pair = grid[sender][receiver];
  const lost = data.hosts[sender].lost || data.hosts[receiver].lost;
  if (!pair && !lost) return { name: `${name}: not measured`, value: undefined };
  return { name, value: pair?.value ?? null, error: pair ? pair.error : lost,
           marked: isMarked(data, sender, receiver) };
}

function wordsOf(data, { name, value, error }) {
  if (value === undefined) return name;
  if (value === null) return `${name}: ${error}`;
  const beside = data.median ? `, ${percent(value / data.median - 1)} of the median` : "";
  return `${name}: ${withUnit(value, data.quantity.unit)}${beside}`;
}

function heat(data) {
  const grid = gridOf(data);
  const names = data.hosts.map(({ name }) => name);
  const rows = names.map((name, sender) => ({
    name, cells: names.map((_, receiver) => cellOf(data, grid, sender, receiver)) }));
  const most = largest(data.pairs.map((pair) => pair.value));
  const { quantity } = data;
  const shown = plot("matrix", "All pairs",
    `Rows send, columns receive; ${quantity.more_is_better ? "more" : "less"} is better. Framed: ` +
    "out of line. Crossed out: failed.",
    (host) => heatMap(host, {
      blocks: [{ title: "from \\ to", note: "", rows, heads: names }], most,
      readout: (cell) => wordsOf(data, cell), hint: "Point at a cell to see its pair.",
      describe: `${quantity.name} between all pairs of ${names.length} hosts` }));
  shown.frame.querySelector("figcaption").append(
    element("p", { class: "scale" }, `${titled(quantity.name, quantity.unit)}: 0`, element("i"),
            withUnit(most, quantity.unit)));
  return shown;
}

function medianOf(values) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  const middle = sorted.length / 2;
  if (sorted.length === 0) return null;
  return (sorted[Math.ceil(middle) - 1] + sorted[Math.floor(middle)]) / 2;
}

function hostTable(data) {
  const grid = gridOf(data);
  const rows = data.hosts.map((host, index) => {
    const sends = medianOf(grid[index].map((pair) => pair?.value));
    const receives = medianOf(grid.map((row) => row[index]?.value));
    const slow = data.slow_hosts.some((one) => one.host === index);
    const state = host.lost ? `lost: ${host.lost}` : slow ? "out of line" : "";
    return [...plain(host.name), ...numbers(figure(sends), figure(receives)),
            { text: state, kind: state ? "bad" : "" }];
  });
  const columns = [...plain("host"), ...numbers(titled("sends, median", data.quantity.unit),
                                                titled("receives, median", data.quantity.unit)),
                   ...plain("")];
  const body = rows.map((row) =>
    element("tr", {}, ...row.map(({ text, kind }) => element("td", { class: kind }, text))));
  const heads = columns.map(({ text, kind }) => element("th", { scope: "col", class: kind }, text));
  return element("section", {}, element("h2", {}, "Hosts"),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Hosts" },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)),
              element("tbody", {}, ...body))));
}

function startMatrix(page) {
  const data = readMatrix();
  const body = element("div");
  const redraw = () => {
    const shown = heat(data);
    body.replaceChildren(shown.frame, hostTable(data));
    shown.draw();
  };
  document.title = `pacecar ${data.test} between ${data.hosts.length} hosts`;
  page.replaceChildren(matrixHeader(data), matrixVerdict(data), body);
  redraw();
  followPage(page, body, redraw);
}

const page = document.getElementById("page");
try {
  startMatrix(page);
} catch (error) {
  page.replaceChildren(element("h1", {}, "This page cannot be shown"),
                       element("p", { class: "failure", role: "alert" },
                               `It is damaged or of another version: ${error.message}.`));
}
