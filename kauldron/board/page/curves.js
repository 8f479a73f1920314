// The view of curves: a card per metric, which asks for its points once it is in sight.
"use strict";

const cards = new Map(); // by metric, while the view is shown

function curvesView(main) {
  cards.clear();
  const smoothing = h("input", { type: "range", id: "smoothing", min: 0, max: 0.99, step: 0.01, value: state.smoothing,
    oninput: (event) => { state.smoothing = Number(event.target.value); update(); } });
  main.append(h("div", { class: "controls" },
    h("label", {}, "Smoothing", smoothing),
    select("x axis", "by", [["step", "step"], ["time", "time"]], state.by, (value) => {
      state.by = value;
      for (const card of cards.values()) { card.curves = null; card.chart.view = null; }
      update();
    }),
    select("group over", "group", [["", "nothing"], ...state.data.fields.map((f) => [f, f])], state.group,
      (value) => { state.group = value; drawRuns(); render(); }),
    isGrouped() ? null : select("colour by", "color", [["", "run"], ...state.data.fields.map((f) => [f, f])], (colorValues(), state.color || ""),
      (value) => { state.color = value; drawRuns(); render(); }),
    check("log scale", "log", state.log, (value) => { state.log = value; update(); }),
    h("input", { type: "search", placeholder: "Filter metrics", "aria-label": "Filter metrics", value: state.metricFilter,
      oninput: (event) => { state.metricFilter = event.target.value; drawCards(holder); } })));
  main.append(h("div", { class: "keys", id: "keys" }, colorKey()));
  const holder = main.appendChild(h("div"));
  drawCards(holder);
}

function drawCards(holder) {
  observer.disconnect();
  cards.clear();
  holder.replaceChildren();
  const wanted = state.metricFilter.toLowerCase();
  const metrics = state.data.metrics.filter((m) => m.name.toLowerCase().includes(wanted));
  const important = metrics.filter((m) => m.main || wanted);
  const rest = metrics.filter((m) => !m.main && !wanted);
  for (const [collection, members] of byCollection(important)) {
    holder.append(h("h2", {}, collection), h("div", { class: "grid" }, members.map(card)));
  }
  if (rest.length) {
    const grid = h("div", { class: "grid" });
    holder.append(h("details", { ontoggle: (event) => {
      if (event.target.open && !grid.childElementCount) grid.append(...rest.map(card));
    } }, h("summary", {}, `${rest.length} more: parts of losses and metrics, schedules, speed`), grid));
  }
  if (!metrics.length) holder.append(h("p", { class: "muted" }, wanted ? "No metric has such a name." : "Nothing was written yet."));
}

// Colours and cards of the runs that are chosen now; a card without any of their values hides.
function updateCards() {
  $("keys").replaceChildren(...colorKey());
  const runs = chosenRuns();
  for (const made of cards.values()) {
    made.element.hidden = !hasValues(made.metric, runs);
    if (made.visible) refreshCard(made);
  }
}

const hasValues = (metric, runs) => !runs.length || runs.some((run) => metric.name in run.values);

function byCollection(metrics) {
  const groups = new Map();
  for (const metric of metrics) groups.set(metric.collection, [...(groups.get(metric.collection) || []), metric]);
  return groups;
}

const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const found = cards.get(entry.target.dataset.metric);
    if (!found) continue;
    found.visible = entry.isIntersecting;
    if (found.visible) refreshCard(found);
  }
}, { rootMargin: "200px" });

function card(metric) {
  const canvas = h("canvas", { class: "chart" });
  const note = h("span", { class: "muted" });
  const element = h("section", { class: "card", "data-metric": metric.name },
    h("header", {}, h("h3", {}, metric.name), note), canvas);
  element.hidden = !hasValues(metric, chosenRuns());
  const made = { metric, note, element, visible: false, curves: null, version: null, by: null };
  made.chart = new charts.Lines(canvas, { series: [], label: metric.name, empty: "Loading …",
    onZoom: () => fetchCurves(made) });
  cards.set(metric.name, made);
  observer.observe(element);
  return element;
}

function refreshCard(made) {
  if (made.curves && made.version === state.data.version && made.by === state.by) drawCard(made);
  else fetchCurves(made);
}

async function fetchCurves(made) {
  const query = { metric: made.metric.name, by: state.by };
  const view = made.chart.view;
  if (view && !embedded) [query.first, query.last] = view;
  const ticket = (made.ticket = {});
  const version = state.data.version;
  try {
    const curves = await ask("curves", query);
    if (made.ticket !== ticket) return; // a later question is on its way
    Object.assign(made, { curves, version, by: query.by });
    drawCard(made);
  } catch (error) {
    made.note.textContent = error.message;
  }
}

function drawCard(made) {
  if (!made.curves) return;
  const runs = chosenRuns().filter((run) => made.curves[run.name]);
  const series = isGrouped() ? groupSeries(runs, made.curves) : runs.map((run) => {
    const { x, y } = made.curves[run.name];
    const curve = { name: run.name, color: colorOf(run), x, y };
    return state.smoothing ? { ...curve, y: smooth(x, y), raw: y } : curve;
  });
  const empty = "No values of the chosen runs";
  made.chart.set({ series, log: state.log, empty, nameX: state.by,
    formatX: state.by === "time" ? duration : number });
  made.note.textContent = isGrouped() ? `mean ± deviation, ${series.length} groups` : "";
}

// An average that forgets by distance on the x axis, not by point: thinning does not change it.
function smooth(x, y) {
  const span = x[x.length - 1] - x[0] || 1;
  const length = (span * state.smoothing ** 3) / 6 || 1e-9;
  let [sum, weight, last] = [0, 0, x[0]];
  return y.map((value, i) => {
    const keep = Math.exp(-(x[i] - last) / length);
    last = x[i];
    [sum, weight] = [sum * keep, weight * keep];
    if (value !== null) [sum, weight] = [sum + value, weight + 1];
    return value === null ? null : sum / weight;
  });
}

function groupSeries(runs, curves) {
  const byName = new Map();
  for (const run of runs) byName.set(groupOf(run), [...(byName.get(groupOf(run)) || []), run]);
  const shown = chosenRuns();
  return [...byName.values()].map((members) => {
    const parts = members.map((run) => curves[run.name]);
    const longest = parts.reduce((a, b) => (a.x.length >= b.x.length ? a : b));
    const columns = parts.map(({ x, y }) => interpolate(x, state.smoothing ? smooth(x, y) : y, longest.x));
    const [y, low, high] = [[], [], []];
    longest.x.forEach((_, i) => {
      const values = columns.map((column) => column[i]).filter((v) => v !== null);
      const mean = values.reduce((a, b) => a + b, 0) / values.length;
      const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / Math.max(1, values.length - 1);
      const deviation = Math.sqrt(variance);
      y.push(values.length ? mean : null);
      low.push(values.length ? mean - deviation : null);
      high.push(values.length ? mean + deviation : null);
    });
    const name = `${groupTitle(members[0], shown)} (${members.length})`;
    return { name, color: colorOf(members[0]), x: longest.x, y, low, high };
  });
}

function interpolate(x, y, targets) {
  let i = 0;
  return targets.map((target) => {
    if (target < x[0] || target > x[x.length - 1]) return null;
    while (i < x.length - 2 && x[i + 1] < target) i++;
    const j = Math.min(i + 1, x.length - 1);
    if (y[i] === null || y[j] === null) return null;
    const share = x[j] > x[i] ? Math.min(1, Math.max(0, (target - x[i]) / (x[j] - x[i]))) : 0;
    return y[i] + share * (y[j] - y[i]);
  });
}
