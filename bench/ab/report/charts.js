// The three kinds of plot: lines over a number (uPlot), rows of marks over a number (SVG), a heat
// map of links (canvas). Each draws into an attached element as wide as that element is now.

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

const STRIP_HEIGHT = 10;
const STRIP_ROOM = { size: 34 + STRIP_HEIGHT, gap: STRIP_HEIGHT + 8,
                     ticks: { show: false } };

// chart: {lines [{name, x, y, colour, dash, width}], x {label, unit, log}, y {label, range},
// bands (as uPlot's), stepped, height, describe, strip [{from, to, colour, text}] (spans of x that
// a coloured strip shows below the plot)}
function lineChart(host, chart) {
  const strip = chart.strip ?? [];
  const lines = coveredNamed(chart.lines);
  const log = !chart.y.range && isWide(lines.flatMap((line) => line.y));
  const plot = new uPlot({
    width: host.clientWidth,
    height: chart.height ?? 280,
    scales: { x: { time: false, distr: chart.x.log ? 3 : 1, range: widened(chart.x.log) },
              y: log ? { distr: 3, range: widened(true) } : { range: chart.y.range ?? fromZero } },
    axes: [{ ...axis(chart.x, host.clientWidth), size: 34, ...(strip.length > 0 && STRIP_ROOM) },
           { ...axis({ label: scaleLabel(chart.y.label, log), log }, 500), size: 52 }],
    series: [{ label: "at", value: (_, x) => x === null ? "" : placeOf(x, chart.x.unit, strip) },
             ...lines.map((line) => lineSeries(line, chart.stepped))],
    bands: chart.bands ?? [],
    legend: { markers: { fill: markerFill, dash: markerDash } },
    cursor: { focus: { prox: 24 } },
    focus: { alpha: 0.3 },
    hooks: { draw: [drawStrip(strip)] },
  }, uPlot.join(lines.map((line) => [line.x, line.y])), host);
  build(plot.ctx.canvas, { role: "img", "aria-label": chart.describe }, []);
  plot.root.querySelectorAll(".u-series:not(:first-child) th").forEach(reachable);
}

function scaleLabel(label, log) {
  return log ? `${label}, logarithmic` : label;
}

// A line that covers an earlier one says so in the legend.
function coveredNamed(lines) {
  const first = new Map();
  return lines.map((line) => {
    const points = JSON.stringify([line.x, line.y]);
    const covered = first.get(points);
    if (covered === undefined) first.set(points, line.name);
    return covered === undefined ? line : { ...line, name: `${line.name} (= ${covered})` };
  });
}

// Between the plot and the figures of its axis.
function drawStrip(strip) {
  return (plot) => {
    const { left, top, width, height } = plot.bbox;
    const ratio = window.devicePixelRatio;
    const position = (x) => Math.min(Math.max(plot.valToPos(x, "x", true), left), left + width);
    for (const { from, to, colour: fill } of strip) {
      const [begin, end] = [position(from), position(to)];
      if (begin === left + width || end === left) continue;  // zoomed out of sight
      plot.ctx.fillStyle = fill;
      plot.ctx.fillRect(begin, top + height + 3 * ratio, Math.max(end - begin, ratio),
                        STRIP_HEIGHT * ratio);
    }
  };
}

function placeOf(x, unit, strip) {
  const span = strip.find(({ from, to }) => x >= from && x < to);
  return span ? `${sized(x, unit)}: ${span.text}` : sized(x, unit);
}

// The legend's mark of a dashed line is open.
function markerFill(plot, index) {
  return markerDash(plot, index) === "solid" ? plot.series[index].stroke() : "transparent";
}

function markerDash(plot, index) {
  return plot.series[index].dash?.length ? "dashed" : "solid";
}

function axis({ label, unit, log = false }, width) {
  const count = Math.max(3, width / 110);
  const words = (split) => UNITS[unit] ? sized(split, unit) : figure(split);
  return {
    label, font: FONT, labelFont: FONT, labelSize: 22, stroke: colour("quiet"),
    grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 },
    values: (_, splits) => splits.map(words),
    ...(log && { splits: (_, index, low, high) => logTicks(low, high, count),
                 filter: (_, splits) => splits }),
  };
}

function lineSeries(line, stepped) {
  return {
    label: line.name, stroke: line.colour, width: line.width ?? 1.5, dash: line.dash ?? [],
    points: { show: line.x.length < 3 }, value: (_, y) => Number.isFinite(y) ? figure(y) : "",
    ...(stepped && { paths: uPlot.paths.stepped({ align: 1 }) }),
  };
}

function widened(log) {
  return (_, low, high) => {
    if (low === null) return [0, 1];
    if (log) return [low / 1.03, high * 1.03];
    return low === high ? [low - 1, high + 1] : [low, high];
  };
}

function fromZero(_, low, high) {
  return [0, high > 0 ? high * 1.05 : 1];
}

// uPlot's legend shows and hides lines by click; the same by keyboard.
function reachable(label) {
  build(label, { tabindex: "0", role: "button" }, []);
  label.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    label.click();
  });
}

// chart: {rows [{heading} or {name, colour, interval [low, high], centre, dots [{x, title}],
// note}], label, zero, describe}. On narrow pages names stand above their marks.
function rowPlot(host, chart) {
  const width = host.clientWidth;
  const narrow = width < 640;
  const area = narrow ? { left: 8, right: width - 8 }
                      : { left: Math.min(300, width * 0.28), right: width - 190 };
  const x = rowScale(chart, area);
  const svg = shape("svg", { width, role: "img", "aria-label": chart.describe });
  let bottom = 6;
  const drawn = chart.rows.map((row) => {
    const height = row.heading !== undefined ? 26 : narrow ? 44 : 28;
    bottom += height;
    return drawRow(row, { width, narrow, area, x, middle: bottom - 13 });
  });
  svg.append(...rowAxis(chart, x, area, bottom), ...drawn.flat());
  build(svg, { height: bottom + 44, viewBox: `0 0 ${width} ${bottom + 44}` }, []);
  host.append(svg);
}

function rowScale(chart, area) {
  const values = chart.rows.flatMap((row) => [...(row.interval ?? []), row.centre ?? null,
                                              ...(row.dots ?? []).map((dot) => dot.x)])
                           .filter(Number.isFinite);
  if (chart.zero) values.push(0);
  const log = isWide(values);
  const [to, from] = log ? [Math.log10, (place) => 10 ** place] : [Number, Number];
  const low = values.reduce((a, b) => Math.min(a, to(b)), Infinity);
  const high = values.reduce((a, b) => Math.max(a, to(b)), -Infinity);
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  const position = (value) => area.left + (to(value) - low + margin) / (high - low + 2 * margin) *
                                          (area.right - area.left);
  return Object.assign(position, { low: from(low - margin), high: from(high + margin), log });
}

function rowAxis(chart, x, area, bottom) {
  const places = (x.log ? logTicks : ticks)(x.low, x.high, (area.right - area.left) / 90);
  const marks = places.flatMap((tick) => [
    shape("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 4, y2: bottom }),
    shape("text", { class: "quiet", x: x(tick), y: bottom + 16, "text-anchor": "middle" },
          figure(tick)),
  ]);
  const zero = { class: "zero", x1: x(0), x2: x(0), y1: 4, y2: bottom };
  if (chart.zero) marks.push(shape("line", zero));
  const place = { x: (area.left + area.right) / 2, y: bottom + 36, "text-anchor": "middle" };
  return [...marks, shape("text", { ...place, class: "quiet" },
                          scaleLabel(chart.label, x.log))];
}

function drawRow(row, { width, narrow, area, x, middle }) {
  if (row.heading !== undefined) {
    return [shape("text", { x: 0, y: middle + 4, "font-weight": "600" }, row.heading)];
  }
  const text = narrow ? middle - 15 : middle + 4;
  const room = Math.floor((narrow ? width * 0.5 : area.left - 12) / 7.2);
  const cut = row.name.length > room ? `${row.name.slice(0, room - 1)}…` : row.name;
  const pieces = [
    shape("text", { x: 0, y: text, fill: "currentColor" }, cut, shape("title", {}, row.name)),
    shape("text", { class: "quiet", x: width, y: text, "text-anchor": "end" }, row.note),
  ];
  if (row.interval) pieces.push(...whisker(row, x, middle));
  for (const dot of row.dots ?? []) {
    pieces.push(shape("circle", { cx: x(dot.x), cy: middle, r: 5, fill: row.colour, opacity: 0.55 },
                      shape("title", {}, dot.title)));
  }
  if (Number.isFinite(row.centre)) pieces.push(centreMark(row, x, middle));
  return pieces;
}

function whisker(row, x, middle) {
  const [low, high] = row.interval.map(x);
  const stroke = { stroke: row.colour, "stroke-width": 2 };
  return [shape("line", { ...stroke, x1: low, x2: high, y1: middle, y2: middle }),
          ...[low, high].map((end) => shape("line", { ...stroke, x1: end, x2: end,
                                                      y1: middle - 5, y2: middle + 5 }))];
}

// The mean: a dot on its interval, a bar across the dots of single runs.
function centreMark(row, x, middle) {
  if (!row.dots) return shape("circle", { cx: x(row.centre), cy: middle, r: 5, fill: row.colour });
  return shape("rect", { x: x(row.centre) - 1.5, y: middle - 11, width: 3, height: 22,
                         fill: colour("ink") });
}

// blocks: [{title, note, rows [{name, cells [{name, value, marked}]}], heads [name] (of columns)}],
// drawn below one another; colours go from 0 to `most`. A value of null is crossed out, one of
// undefined left empty, a marked one framed. readout(cell) gives the words for the cell under the
// pointer, and `hint` those for none.
function heatMap(host, { blocks: unbroken, most, describe, readout,
                         hint = "Point at a cell to see its link." }) {
  const width = host.clientWidth;
  const labels = Math.min(110, width * 0.28);
  const blocks = broken(unbroken, Math.floor((width - labels) / 4));
  const columns = largest(blocks.flatMap((block) => block.rows.map((row) => row.cells.length)));
  const size = Math.min(30, (width - labels) / columns);
  const height = Math.max(3, Math.min(20, size));
  const canvas = element("canvas", { role: "img", "aria-label": describe });
  const words = element("p", { class: "readout" }, hint);
  const tall = blocks.reduce((sum, block) => sum + above(block) + block.rows.length * height + 10,
                             0);
  const context = sharp(canvas, width, tall);
  const spots = layOut(blocks, { labels, size, height });
  drawLabels(context, blocks, spots, { labels, height, size });
  const heat = heatScale(most);
  for (const spot of spots) drawCell(context, spot, heat);
  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    const under = spots.find((spot) => offsetX >= spot.x && offsetX < spot.x + size &&
                                       offsetY >= spot.y && offsetY < spot.y + height);
    words.textContent = canvas.title = under ? readout(under.cell) : hint;
  });
  host.append(canvas, words);
}

// The same with rows of more cells than fit broken into several.
function broken(blocks, room) {
  const pieces = ({ name, cells }) => cells.flatMap((_, begin) => begin % room !== 0 ? [] : [
    { name: begin === 0 ? name : "", cells: cells.slice(begin, begin + room) }]);
  return blocks.map((block) => ({ ...block, rows: block.rows.flatMap(pieces) }));
}

function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

const HEAD = 84;  // of the names of columns, which stand upright

function above(block) {
  return 24 + (block.heads ? HEAD : 0);
}

// Where each cell lies. A block is a title of 24 pixels, the names of its columns, and its rows.
function layOut(blocks, { labels, size, height }) {
  const spots = [];
  let top = 0;
  for (const block of blocks) {
    top += above(block);
    for (const row of block.rows) {
      row.cells.forEach((cell, column) => spots.push({
        cell, block, x: labels + column * size, y: top, width: size, height }));
      top += height;
    }
    top += 10;
  }
  return spots;
}

function drawLabels(context, blocks, spots, { labels, height, size }) {
  context.textBaseline = "middle";
  for (const block of blocks) {
    const first = spots.find((spot) => spot.block === block);
    context.font = `600 ${FONT}`;
    context.fillStyle = colour("ink");
    const title = first.y - above(block) + 13;
    context.fillText(block.title, 0, title);
    context.font = FONT;
    context.fillStyle = colour("quiet");
    const beside = Math.max(labels, context.measureText(block.title).width + 16);
    context.fillText(block.note, beside, title);
    if (block.heads) drawHeads(context, block.heads, { left: labels, top: first.y, size });
    const every = Math.ceil(13 / height);
    block.rows.forEach((row, index) => {
      const y = first.y + (index + 0.5) * height;
      if (index % every === 0) context.fillText(row.name, 0, y, labels - 8);
    });
  }
}

function drawHeads(context, heads, { left, top, size }) {
  const every = Math.ceil(13 / size);
  heads.forEach((head, index) => {
    if (index % every !== 0) return;
    context.save();
    context.translate(left + (index + 0.5) * size, top - 6);
    context.rotate(-Math.PI / 2);
    context.fillText(head, 0, 0, HEAD - 10);
    context.restore();
  });
}

function drawCell(context, { cell, x, y, width, height }, heat) {
  if (cell.value === undefined) return;
  const gap = Math.min(width, height) > 5 ? 1 : 0;
  if (cell.value === null) return crossOut(context, x, y, width - gap, height - gap);
  context.fillStyle = heat(cell.value);
  context.fillRect(x, y, width - gap, height - gap);
  if (!cell.marked) return;
  context.strokeStyle = colour("bad");
  context.lineWidth = gap ? 2 : 1;
  context.strokeRect(x + 1, y + 1, width - gap - 2, height - gap - 2);
}

function crossOut(context, x, y, width, height) {
  context.strokeStyle = colour("quiet");
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + width, y + height);
  context.moveTo(x + width, y);
  context.lineTo(x, y + height);
  context.stroke();
}

// The colour of a value between 0 and `most`.
function heatScale(most) {
  const stops = [0, 1, 2, 3, 4].map((index) => channels(colour(`heat-${index}`)));
  return (value) => {
    const place = most > 0 ? Math.min(value / most, 1) * 4 : 0;
    const step = Math.min(3, Math.floor(place));
    const mixed = stops[step].map((from, index) =>
      Math.round(from + (stops[step + 1][index] - from) * (place - step)));
    return `rgb(${mixed.join(",")})`;
  };
}

function channels(hex) {
  return [1, 3, 5].map((begin) => Number.parseInt(hex.slice(begin, begin + 2), 16));
}
