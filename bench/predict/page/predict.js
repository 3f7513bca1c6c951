// Bus bandwidth over size, one plot for each operation, and a table of the best choices.

function readAnswers() {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.schema_version !== 1) {
    throw new Error(`its data is of version ${data.schema_version}, and this page reads version 1`);
  }
  return data;
}

function linesOf(results) {
  const lines = new Map();
  for (const one of results) {
    const name = `${one.algorithm} ${one.protocol}`;
    if (!lines.has(name)) lines.set(name, { name, x: [], y: [] });
    lines.get(name).x.push(one.size);
    lines.get(name).y.push(one.busbw_gb_s);
  }
  return [...lines.values()].map((line, index) => ({
    ...line, colour: armColour(index), dash: armDash(index), width: 2 }));
}

function operationPlot(operation, results) {
  return plot(operation, operation, "Predicted bus bandwidth, as nccl-tests count it.",
    (host) => lineChart(host, {
      lines: linesOf(results), x: { label: "size (logarithmic)", unit: "B", log: true },
      y: { label: "bus bandwidth, GB/s" },
      describe: `predicted bus bandwidth of ${operation} by size` }));
}

function bestTable(data) {
  const columns = [...plain("operation"), ...numbers("size, B"), ...plain("algorithm", "protocol"),
                   ...numbers("time, us", "busbw, GB/s"), ...plain("what takes most of the time")];
  const rows = data.results.filter(({ best }) => best).map((one) => [
    ...plain(one.operation), ...numbers(String(one.size)), ...plain(one.algorithm, one.protocol),
    ...numbers(figure(one.time_us), figure(one.busbw_gb_s)), ...plain(one.bottleneck)]);
  return element("section", {}, element("h2", {}, "Best choices"),
                 table("Best choices", columns, [{ name: "", rows }]));
}

function startAnswers(page) {
  const data = readAnswers();
  const body = element("div");
  const names = [...new Set(data.results.map(({ operation }) => operation))];
  const redraw = () => {
    const plots = names.map((name) =>
      operationPlot(name, data.results.filter(({ operation }) => operation === name)));
    body.replaceChildren(...plots.map(({ frame }) => frame), bestTable(data));
    for (const one of plots) one.draw();
  };
  document.title = `predicted collectives of ${data.ranks} ranks`;
  page.replaceChildren(element("header", {}, element("h1", {},
    `Predicted collectives of ${data.ranks} ranks on ${data.hosts} hosts`),
    element("p", {}, data.assumed)), body);
  redraw();
  followPage(page, body, redraw);
}

const page = document.getElementById("page");
try {
  startAnswers(page);
} catch (error) {
  page.replaceChildren(element("h1", {}, "This page cannot be shown"),
                       element("p", { class: "failure", role: "alert" },
                               `It is damaged or of another version: ${error.message}.`));
}
