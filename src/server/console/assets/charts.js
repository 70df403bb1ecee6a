"use strict";
// A chart is drawn from the table next to it, which stays for screen readers: the first column is the x axis (numbers,
// or times), each further one a line. <figure class="chart" data-kind="line|bars|points" data-x="time|number|log"
// data-y="…unit…" data-min="…" data-max="…">; <th data-band="low|high"> marks the bounds of an interval. Of a table that
// several share (data-table="its id"), a chart has the columns with its own id: <th data-chart="…">. An empty cell is a gap.

const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
// Steps of an axis of counts (data-whole).
const WHOLE = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
// Of each figure that is drawn: its plot, what its lines are, and their values. A live part of a page brings new values
// into the same table; they go into the same plot.
const drawn = new Map();

// A canvas knows no variables and no pairs of a light and a dark colour: the browser is asked what comes of one.
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function read(table, id) {
  const all = [...[...table.tHead.rows].at(-1).cells];
  const heads = all.filter((head, at) => at === 0 || !id || head.dataset.chart === id);
  const columns = heads.map(() => []);
  const places = heads.map((head) => all.indexOf(head));
  for (const { cells } of table.tBodies[0].rows) {
    places.forEach((place, at) => {
      const text = cells[place].dataset.value ?? cells[place].textContent.trim();
      columns[at].push(text === "" ? null : Number(text));
    });
  }
  return { heads, columns };
}

// A value between two gaps has no line, and is drawn as a point.
function alone(plot, series) {
  const values = plot.data[series];
  const found = [...values.keys()].filter((at) => values[at] !== null && values[at - 1] == null && values[at + 1] == null);
  return found.length > 0 ? found : null;
}

function draw(figure, anew) {
  const shared = figure.dataset.table;
  const table = shared ? document.getElementById(shared) : figure.querySelector("details table");
  const place = figure.querySelector(".plot");
  if (!table || !place) return;
  const { heads, columns } = read(table, shared && figure.id);
  if (columns[0].length === 0) return;
  const lines = heads.map((head) => head.outerHTML).join("") + figure.dataset.kind;
  const values = JSON.stringify(columns);
  const before = drawn.get(figure);
  if (before && !anew && before.lines === lines && before.plot.root.isConnected) {
    if (before.values !== values) before.plot.setData(columns);
    before.values = values;
    return;
  }
  const kind = figure.dataset.kind ?? "line";
  const bands = [];
  const low = heads.findIndex((head) => head.dataset.band === "low");
  const high = heads.findIndex((head) => head.dataset.band === "high");
  if (low > 0 && high > 0) bands.push({ series: [high, low], fill: colour("--band") });
  let next = 0;
  const series = heads.slice(1).map((head, at) => {
    const bound = head.dataset.band !== undefined;
    const stroke = bound ? "transparent" : colour(head.dataset.colour ?? COLOURS[next++ % COLOURS.length]);
    const one = { label: head.textContent, stroke, width: bound ? 0 : 2, points: { show: kind === "points" } };
    if (kind === "line") one.points.filter = alone;
    if (kind === "bars") { one.paths = uPlot.paths.bars({ size: [0.8, 40] }); one.fill = stroke; }
    if (kind === "points") one.paths = () => null;
    if (head.dataset.points !== undefined) one.points = { show: true, size: 8 };
    if (head.dataset.dash !== undefined) one.dash = [6, 4];
    return one;
  });
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid") } };
  const range = (name) => (figure.dataset[name] === undefined ? undefined : Number(figure.dataset[name]));
  const y = {};
  if (range("min") !== undefined || range("max") !== undefined) {
    // A little above the highest value, so that its line is seen whole; counts have room for one at least.
    const bottom = (min) => range("min") ?? min ?? 0;
    const top = (min, max) => (figure.dataset.whole || !(max > bottom(min)) ? Math.max(max ?? 0, bottom(min) + 1) : max) * 1.05;
    y.range = (_, min, max) => [bottom(min), range("max") ?? top(min, max)];
  }
  const options = {
    width: place.clientWidth || 300,
    height: parseFloat(getComputedStyle(place).minHeight),
    legend: { show: heads.length > 2, live: false },
    cursor: { y: false },
    // Pages with charts over time show UTC.
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"),
    scales: { x: { time: figure.dataset.x === "time", distr: figure.dataset.x === "log" ? 3 : 1 }, y },
    axes: [axis, { ...axis, ...(figure.dataset.whole ? { incrs: WHOLE } : {}), size: 56, label: figure.dataset.y, labelSize: figure.dataset.y ? 18 : 0 }],
    series: [{}, ...series],
    bands,
  };
  before?.plot.destroy();
  place.replaceChildren();
  drawn.set(figure, { plot: new uPlot(options, columns, place), lines, values });
}

const all = (anew) => document.querySelectorAll("figure.chart").forEach((figure) => draw(figure, anew));
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = drawn.get(target.closest("figure"))?.plot;
    if (plot && target.clientWidth && target.clientWidth !== plot.width) plot.setSize({ width: target.clientWidth, height: plot.height });
  }
});
const watched = new Set();
function watch() {
  all(false);
  for (const [figure, { plot }] of drawn) {
    if (figure.isConnected) continue;
    plot.destroy();
    drawn.delete(figure);
  }
  for (const place of watched) {
    if (place.isConnected) continue;
    resized.unobserve(place);
    watched.delete(place);
  }
  for (const place of document.querySelectorAll("figure.chart .plot")) {
    if (watched.has(place)) continue;
    resized.observe(place);
    watched.add(place);
  }
}
document.addEventListener("callgate:theme", () => all(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(true));
// A page's words are painted before its charts are drawn: the next frame begins with them.
requestAnimationFrame(() => setTimeout(() => {
  document.addEventListener("callgate:shown", watch);
  watch();
}));
