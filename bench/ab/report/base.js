// Figures as people read them, elements of the page, colours. Text from the experiment reaches the
// page as text nodes only, so that no name can become markup.

const SVG = "http://www.w3.org/2000/svg";

// Units that one metric may be shown in, each with its size in the first-named unit of the data.
const UNITS = {
  "us": [["µs", 1], ["ms", 1e3], ["s", 1e6]],
  "B": [["B", 1], ["KB", 1e3], ["MB", 1e6], ["GB", 1e9]],
  "Gb/s": [["kb/s", 1e-6], ["Mb/s", 1e-3], ["Gb/s", 1], ["Tb/s", 1e3]],
};

// The unit in which `magnitude` has few digits before the point: {name, size}.
function unitFor(unit, magnitude) {
  const choices = UNITS[unit] ?? [[unit, 1]];
  const fitting = choices.filter(([, size]) => Math.abs(magnitude) >= size);
  const [name, size] = fitting.at(-1) ?? (magnitude ? choices[0] : choices.find((c) => c[1] === 1));
  return { name, size };
}

function figure(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) {
    return value.toExponential(2).replace(/\.?0+e/, "e");
  }
  const rounding = size >= 10 ** digits ? { maximumFractionDigits: 0 }
                                        : { maximumSignificantDigits: digits };
  return value.toLocaleString("en", rounding).replace("-", "−");
}

function signed(value, digits) {
  return (value > 0 ? "+" : "") + figure(value, digits);
}

// Ten times and more is no matter of percent.
function percent(fraction) {
  if (fraction === null || !Number.isFinite(fraction)) return "–";
  return fraction >= 9 ? `×${figure(1 + fraction, 3)}` : `${signed(100 * fraction, 3)}%`;
}

function withUnit(value, unit) {
  return `${figure(value)}${unit === "%" || unit === "" ? "" : " "}${unit}`;
}

// In the unit that suits the value itself.
function sized(value, unit) {
  const { name, size } = unitFor(unit, value);
  return withUnit(value / size, name);
}

function titled(label, unit) {
  return unit ? `${label} (${unit})` : label;
}

function largest(values) {
  return values.reduce((most, value) => Math.max(most, value ?? 0), 0);
}

function average(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function element(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

function shape(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

// groups: [{name, rows [[cell]]}]: the name heads all rows of its group, beside them, or, where
// there is no column for it, above them. A cell, like a column, is
// {text, kind} with kind "number", "good", "bad" or "". A table that is too wide scrolls by itself.
function table(title, columns, groups) {
  const heads = columns.map(({ text, kind }) => element("th", { scope: "col", class: kind }, text));
  const bodies = groups.map(({ name, rows }) => {
    const above = rows[0].length === columns.length;
    const label = element("th", { scope: "rowgroup",
                                  [above ? "colspan" : "rowspan"]: above ? columns.length
                                                                         : rows.length }, name);
    const lines = rows.map((row, index) => {
      const cells = row.map(({ text, kind }) => element("td", { class: kind }, text));
      return element("tr", {}, index === 0 && !above ? label : null, ...cells);
    });
    return element("tbody", {}, above ? element("tr", { class: "above" }, label) : null, ...lines);
  });
  const head = element("thead", {}, element("tr", {}, ...heads));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
                 element("table", {}, head, ...bodies));
}

function plain(...texts) {
  return texts.map((text) => ({ text, kind: "" }));
}

function numbers(...texts) {
  return texts.map((text) => ({ text, kind: "number" }));
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// There are eight colours; a ninth arm has the first one's with another dash.
function armColour(index) {
  return colour(`arm-${index % 8}`);
}

function armDash(index) {
  return [[], [9, 4], [3, 3], [12, 3, 3, 3]][(index + Math.floor(index / 8)) % 4];
}

function swatch(background) {
  return element("span", { class: "swatch", style: `background: ${background}` });
}

// Round figures from low to high, about `count` of them.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step);
}

// Whether a linear axis would hide the small ones among the values.
function isWide(values) {
  const found = values.filter(Number.isFinite);
  const low = found.reduce((least, value) => Math.min(least, value), Infinity);
  return low > 0 && largest(found) > 100 * low;
}

// The same for a logarithmic axis, whose span decides how fine they are.
function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 0.8) return ticks(low, high, count);
  const factors = decades > 3 ? [1] : decades > 1.5 ? [1, 3] : [1, 2, 3, 5];
  const powers = Array.from({ length: Math.ceil(decades) + 2 },
                            (_, i) => 10 ** (Math.floor(Math.log10(low)) + i));
  const found = powers.flatMap((power) => factors.map((factor) => factor * power))
                      .filter((tick) => tick >= low && tick <= high);
  return found.filter((_, index) => index % Math.ceil(found.length / count) === 0);
}

// At most `points` values: of each stretch its largest ("peak") or its mean, at its begin.
function thinned(series, points, keep) {
  const stride = Math.ceil(series.values.length / points);
  const x = [];
  const y = [];
  for (let begin = 0; begin < series.values.length; begin += stride) {
    const stretch = series.values.slice(begin, begin + stride).filter((value) => value !== null);
    x.push(begin * series.interval_us);
    y.push(stretch.length === 0 ? null : keep === "peak" ? largest(stretch) : average(stretch));
  }
  return { x, y };
}

function fact(name, value) {
  return value ? [element("dt", {}, name), element("dd", {}, value)] : [];
}

function code(text) {
  return text ? element("code", {}, text) : null;
}

// A figure whose plot is drawn once it is part of the page and its width is known.
function plot(id, title, text, draw) {
  const host = element("div");
  const frame = element("figure", { "data-plot": id },
                        element("figcaption", {}, element("h3", {}, title),
                                element("p", { class: "quiet" }, text)), host);
  return { frame, draw: () => draw(host) };
}

// Plots have the colours and the width of the page as they were drawn: draw again when these
// change. Paper is white and narrow.
function followPage(page, body, redraw) {
  let width = body.clientWidth;
  new ResizeObserver(() => {
    if (body.clientWidth === width) return;
    width = body.clientWidth;
    requestAnimationFrame(redraw);
  }).observe(body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const paper = (on) => () => {
    document.documentElement.toggleAttribute("data-paper", on);
    redraw();
  };
  window.addEventListener("beforeprint", paper(true));
  window.addEventListener("afterprint", paper(false));
}
