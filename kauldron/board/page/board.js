// The page: runs on the left, views on the right. Texts of runs only ever become text nodes.
// What is drawn in a canvas is in charts.js, what runs wrote to files in media.js.
"use strict";

const { number, duration } = charts;
const $ = (id) => document.getElementById(id);

// h("p", { class: "muted" }, "text", node): an element.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

//
// Data: from the server, or from the page itself in a report
//

const embedded = $("embedded") ? JSON.parse($("embedded").textContent) : null;

function keyOf(name, query) {
  const parts = Object.entries(query).sort().map(([k, v]) => `${k}=${v}`);
  return [name, ...parts].join("&");
}

async function ask(name, query = {}) {
  if (embedded) {
    const { first, last, ...rest } = query;
    const answer = embedded[keyOf(name, rest)];
    if (answer === undefined) throw new Error("This report does not hold it.");
    return answer;
  }
  const response = await fetch(`api/${name}?${new URLSearchParams(query)}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

function fileUrl(name, query) {
  return embedded ? embedded[keyOf(name, query)] || "" : `api/${name}?${new URLSearchParams(query)}`;
}

//
// State
//

const state = {
  data: { runs: [], fields: [], metrics: [], title: "" },
  best: {},
  view: "curves",
  chosen: null, // names of runs, or null for all
  filter: "",
  smoothing: 0,
  by: "step",
  log: false,
  group: "",
  color: null, // the field that colours tell, "" for the run
  metricFilter: "",
  sort: { column: "run", down: false },
  run: null, // of the views that show one run; "" for the chosen ones, side by side
  other: null,
  onlyDifferent: true,
  sweep: { x: null, y: null },
  loaded: false,
};

function matches(run) {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const fields = Object.entries(run.fields).map(([k, v]) => `${k}=${v}`);
  const text = [run.name, stateOf(run), run.note, ...run.tags, ...fields].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

const isChosen = (run) => matches(run) && (state.chosen === null || state.chosen.has(run.name));
const chosenRuns = () => state.data.runs.filter(isChosen);
const isDark = () => document.documentElement.dataset.theme === "dark";

const HUES = [262, 35, 155, 320, 95, 205, 5, 125, 290, 60];

function hueColor(index) {
  const hue = index < HUES.length ? HUES[index] : (index * 137.508 + 20) % 360;
  return `oklch(${isDark() ? 0.74 : 0.56} 0.15 ${hue.toFixed(0)})`;
}

function colorOf(run) {
  const values = colorValues();
  return hueColor(values ? values.indexOf(run.fields[state.color]) : state.data.runs.indexOf(run));
}

// Many runs are told apart by a field, not by a colour each.
function colorValues() {
  if (state.color === null && state.data.runs.length > 12) {
    const count = (field) => new Set(state.data.runs.map((run) => run.fields[field])).size;
    state.color = state.data.fields.find((f) => !/seed/.test(f) && count(f) <= HUES.length) || "";
  }
  if (!state.color || !state.data.fields.includes(state.color)) return null;
  const values = [...new Set(state.data.runs.map((run) => run.fields[state.color]))];
  return values.every((v) => typeof v === "number") ? values.sort((a, b) => a - b) : values;
}

function colorKey() {
  const values = colorValues();
  if (!values || values.length > HUES.length) return [];
  return values.map((value, i) => {
    const swatch = h("span", { class: "swatch" });
    swatch.style.background = swatch.style.borderColor = hueColor(i);
    return h("span", { class: "key" }, swatch, number(value));
  });
}

//
// The list of runs
//

function drawRuns() {
  const shown = state.data.runs.filter(matches);
  const list = $("runs");
  const items = shown.map((run) => {
    const on = isChosen(run);
    const box = h("input", { type: "checkbox", onchange: () => toggle(run.name) });
    box.checked = on;
    const swatch = h("span", { class: "swatch" });
    swatch.style.borderColor = colorOf(run);
    if (on) swatch.style.background = colorOf(run);
    const label = h("label", { class: on ? "" : "off", title: describe(run) }, box, swatch,
      h("span", { class: "name" }, run.name),
      run.state === "complete" ? null : h("span", { class: `state ${run.state}` }, run.state));
    label.addEventListener("dblclick", (event) => { event.preventDefault(); choose(new Set([run.name])); });
    return h("li", { "data-run": run.name }, label);
  });
  const focused = document.activeElement && document.activeElement.closest("#runs li");
  const name = focused && focused.dataset.run;
  list.replaceChildren(...items);
  if (name) items.filter((item) => item.dataset.run === name).forEach((item) => item.querySelector("input").focus());
  $("count").textContent = `${chosenRuns().length} of ${state.data.runs.length}`;
  const running = state.data.runs.filter((run) => run.state === "running").length;
  $("title").textContent = state.data.title;
  document.title = `${state.data.title} · kauldron`;
  $("status").textContent = embedded ? `report of ${state.data.runs.length} runs`
    : `${state.data.runs.length} runs` + (running ? `, ${running} running` : "");
}

const stateOf = (run) => (run.end ? `${run.state}, ${run.end}` : run.state);

function describe(run) {
  const fields = Object.entries(run.fields).map(([k, v]) => `${k} = ${v}`);
  return [run.name, `${stateOf(run)}, step ${number(run.step)}`, run.note, ...fields].filter(Boolean).join("\n");
}

function toggle(name) {
  const names = state.chosen || new Set(state.data.runs.map((run) => run.name));
  if (names.has(name)) names.delete(name); else names.add(name);
  choose(names);
}

function choose(names) {
  state.chosen = names;
  drawRuns();
  update();
}

//
// Curves
//

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
      (value) => { state.group = value; render(); }),
    select("colour by", "color", [["", "run"], ...state.data.fields.map((f) => [f, f])], (colorValues(), state.color || ""),
      (value) => { state.color = value; drawRuns(); render(); }),
    check("log scale", "log", state.log, (value) => { state.log = value; update(); }),
    h("input", { type: "search", placeholder: "Filter metrics", "aria-label": "Filter metrics", value: state.metricFilter,
      oninput: (event) => { state.metricFilter = event.target.value; drawCards(holder); } })));
  if (!state.group) main.append(h("div", { class: "keys" }, colorKey()));
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
  const made = { metric, note, visible: false, curves: null, version: null, by: null, view: null };
  made.chart = new charts.Lines(canvas, { series: [], label: metric.name, empty: "Loading …",
    onZoom: (view) => { made.view = view; fetchCurves(made); } });
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
    if (!view) made.whole = curves;
    drawCard(made);
  } catch (error) {
    made.note.textContent = error.message;
  }
}

function drawCard(made) {
  if (!made.curves) return;
  const runs = chosenRuns().filter((run) => made.curves[run.name]);
  const grouped = state.group && state.data.fields.includes(state.group);
  const series = grouped ? groupSeries(runs, made.curves) : runs.map((run) => {
    const { x, y } = made.curves[run.name];
    const curve = { name: run.name, color: colorOf(run), x, y };
    return state.smoothing ? { ...curve, y: smooth(x, y), raw: y } : curve;
  });
  const empty = "No values of the chosen runs";
  made.chart.set({ series, log: state.log, empty, nameX: state.by,
    formatX: state.by === "time" ? duration : number });
  made.note.textContent = grouped ? `mean ± deviation, ${series.length} groups` : "";
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
  const groups = new Map();
  for (const run of runs) {
    const rest = Object.entries(run.fields).filter(([field]) => field !== state.group);
    const name = rest.map(([field, value]) => `${field} ${number(value)}`).join(", ") || "all runs";
    groups.set(name, [...(groups.get(name) || []), run]);
  }
  return [...groups].map(([name, members], index) => {
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
    return { name: `${name} (${members.length})`, color: hueColor(index), x: longest.x, y, low, high };
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

//
// Table
//

function tableColumns() {
  const metrics = state.data.metrics.filter((m) => m.main);
  const columns = [
    { name: "run", get: (r) => r.name },
    { name: "state", get: (r) => r.state },
    { name: "step", get: (r) => r.step, number: true },
    { name: "steps/s", get: (r) => r.speed, number: true },
    ...state.data.fields.map((f) => ({ name: f, get: (r) => r.fields[f], number: typeof firstValue(f) === "number" })),
  ];
  for (const m of metrics) {
    columns.push({ name: m.name, get: (r) => r.values[m.name], number: true, metric: m });
    if (m.collection !== "train") {
      columns.push({ name: `${m.name} best`, get: (r) => (state.best[r.name] || {})[m.name], number: true, metric: m });
    }
  }
  return columns;
}

const firstValue = (field) => state.data.runs.map((r) => r.fields[field]).find((v) => v !== null && v !== undefined);
const isMissing = (value) => value === null || value === undefined;

function tableView(main) {
  const columns = tableColumns();
  const sorted = columns.find((c) => c.name === state.sort.column) || columns[0];
  const rows = state.data.runs.filter(matches);
  if (!(sorted.name === "run" && !state.sort.down)) {
    rows.sort((a, b) => {
      const [x, y] = [sorted.get(a), sorted.get(b)];
      if (isMissing(x) || isMissing(y)) return isMissing(x) - isMissing(y);
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return state.sort.down ? -order : order;
    });
  }
  const bestOf = new Map(columns.filter((c) => c.metric).map((c) => {
    const values = rows.filter(isChosen).map(c.get).filter((v) => !isMissing(v));
    return [c, new Set(values).size > 1 ? Math[c.metric.smaller ? "min" : "max"](...values) : null];
  }));
  const header = columns.map((c) => h("th", {
    class: c.number ? "number" : "", scope: "col",
    "aria-sort": c === sorted ? (state.sort.down ? "descending" : "ascending") : null,
  }, h("button", { type: "button", onclick: () => {
    const first = Boolean(c.metric && !c.metric.smaller);
    state.sort = { column: c.name, down: state.sort.column === c.name ? !state.sort.down : first };
    render();
  } }, c.name)));
  const body = rows.map((run) => h("tr", { class: isChosen(run) ? "" : "off" }, columns.map((c) => {
    const value = c.get(run);
    if (c.name === "run") {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = colorOf(run);
      return h("td", { title: describe(run) }, swatch, run.name);
    }
    if (c.name === "state") return h("td", {}, h("span", { class: `state ${run.state}` }, stateOf(run)), progress(run));
    return h("td", { class: [c.number ? "number" : "", c.metric && value === bestOf.get(c) ? "best" : ""].join(" ") }, number(value));
  })));
  main.append(h("div", { class: "scroll" }, h("table", { id: "table" }, h("thead", {}, h("tr", {}, header)), h("tbody", {}, body))));
}

function progress(run) {
  if (run.state !== "running" || !run.num_steps || isMissing(run.step)) return null;
  const fill = h("i");
  fill.style.width = `${Math.min(100, (100 * run.step) / run.num_steps)}%`;
  return h("span", { class: "bar", title: `${run.step} of ${run.num_steps}` }, fill);
}

//
// Sweep
//

function sweepView(main) {
  const fields = state.data.fields;
  const metrics = state.data.metrics.filter((m) => m.main);
  if (!fields.length || !metrics.length) {
    return main.append(h("p", { class: "muted" }, "A sweep needs runs whose configs differ, and a metric."));
  }
  const { sweep } = state;
  if (!fields.includes(sweep.x)) sweep.x = fields.find((f) => f !== "seed" && typeof firstValue(f) === "number") || fields[0];
  if (!metrics.some((m) => m.name === sweep.y)) {
    sweep.y = (metrics.find((m) => m.collection !== "train" && !m.smaller) || metrics.find((m) => m.collection !== "train") || metrics[0]).name;
  }
  const metric = metrics.find((m) => m.name === sweep.y);
  const better = (run) => (state.best[run.name] || {})[sweep.y] ?? run.values[sweep.y];
  main.append(h("div", { class: "controls" },
    select("metric", "sweep-y", metrics.map((m) => [m.name, m.name]), sweep.y, (value) => { sweep.y = value; render(); }),
    select("field", "sweep-x", fields.map((f) => [f, f]), sweep.x, (value) => { sweep.x = value; render(); }),
    h("span", { class: "muted" }, metric.collection === "train" ? "last values" : "best values")));
  const runs = chosenRuns();
  const values = runs.map(better).filter((v) => !isMissing(v));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const heat = (value) => {
    const share = isMissing(value) ? 0 : (value - low) / (high - low || 1);
    const good = metric.smaller ? 1 - share : share;
    return `oklch(${isDark() ? 0.45 + 0.4 * good : 0.85 - 0.4 * good} ${(0.05 + 0.13 * good).toFixed(3)} ${(262 - 100 * (1 - good)).toFixed(0)})`;
  };
  const rows = runs.map((run) => ({ name: run.name, color: heat(better(run)), order: better(run) ?? -Infinity,
    values: { ...run.fields, [sweep.y]: better(run) }, x: run.fields[sweep.x], y: better(run) }));
  rows.sort((a, b) => (metric.smaller ? b.order - a.order : a.order - b.order)); // the best on top
  const all = h("canvas", { class: "chart tall", role: "img", "aria-label": "A line per run through its fields and the metric" });
  const one = h("canvas", { class: "chart tall", role: "img", "aria-label": `${sweep.y} by ${sweep.x}` });
  main.append(h("div", { class: "grid" },
    h("section", { class: "card wide" }, h("header", {}, h("h3", {}, "All fields"), h("span", { class: "muted" }, "the better, the stronger")), all),
    h("section", { class: "card wide" }, h("header", {}, h("h3", {}, `${sweep.y} by ${sweep.x}`)), one)));
  new ResizeObserver(() => charts.parallel(all, [...fields.slice(0, 9), sweep.y], rows)).observe(all);
  new ResizeObserver(() => charts.scatter(one, rows, sweep.x, sweep.y)).observe(one);
}

//
// Config
//

async function configView(main) {
  const runs = state.data.runs;
  if (runs.length < 1) return;
  const chosen = chosenRuns();
  const pick = (name, fallback) => runs.find((r) => r.name === name) || fallback || runs[0];
  const left = pick(state.run, chosen[0]);
  const right = pick(state.other, chosen.find((r) => r !== left) || runs.find((r) => r !== left) || left);
  const names = runs.map((r) => [r.name, r.name]);
  main.append(h("div", { class: "controls" },
    select("left", "left", names, left.name, (value) => { state.run = value; render(); }),
    select("right", "right", names, right.name, (value) => { state.other = value; render(); }),
    check("only what differs", "only", state.onlyDifferent, (value) => { state.onlyDifferent = value; render(); })));
  const holder = main.appendChild(h("div"));
  const [a, b] = await Promise.all([left, right].map((run) => ask("config", { run: run.name })));
  const paths = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  const text = (config, path) => (path in config ? JSON.stringify(config[path]) : "");
  const rows = paths.map((path) => ({ path, left: text(a, path), right: text(b, path) }));
  const shown = rows.filter((row) => !state.onlyDifferent || row.left !== row.right);
  holder.append(shown.length ? h("div", { class: "scroll" }, h("table", { class: "diff", id: "diff" },
    h("thead", {}, h("tr", {}, h("th", {}, "field"), h("th", {}, left.name), h("th", {}, right.name))),
    h("tbody", {}, shown.map((row) => h("tr", { class: row.left !== row.right ? "differs" : "" },
      h("td", {}, row.path), h("td", {}, row.left), h("td", {}, row.right))))))
    : h("p", { class: "muted" }, paths.length ? "Both configs are the same." : "These runs have no config.json."));
}

//
// Parts of forms
//

function select(label, id, options, value, change) {
  const box = h("select", { id, onchange: (event) => change(event.target.value) },
    options.map(([key, text]) => h("option", { value: key }, text)));
  box.value = value;
  return h("label", {}, label, box);
}

function check(label, id, value, change) {
  const box = h("input", { type: "checkbox", id, onchange: (event) => change(event.target.checked) });
  box.checked = value;
  return h("label", {}, box, label);
}

//
// The frame
//

const VIEWS = {
  curves: ["Curves", curvesView],
  table: ["Table", tableView],
  media: ["Media", mediaView],
  sweep: ["Sweep", sweepView],
  config: ["Config", configView],
  logs: ["Logs", logsView],
};

async function render() {
  charts.hideTooltip();
  for (const tab of $("tabs").children) tab.setAttribute("aria-selected", String(tab.dataset.view === state.view));
  const main = h("div");
  const ticket = (render.ticket = {});
  const place = $("main").scrollTop;
  if (!state.data.runs.length) {
    if (state.loaded) main.append(h("div", { class: "empty" }, h("h2", {}, "No runs yet"),
      h("p", {}, "Start one with ", h("code", {}, "kauldron train --cfg=config.py --cfg.workdir=…"), " in this folder. It appears here by itself.")));
    $("main").replaceChildren(main);
    return;
  }
  if (state.view === "curves") $("main").replaceChildren(main);
  try {
    await VIEWS[state.view][1](main);
  } catch (error) {
    main.append(h("p", { class: "problem" }, error.message));
  }
  if (render.ticket !== ticket) return;
  if (state.view !== "curves") $("main").replaceChildren(main);
  $("main").scrollTop = place;
}

// Draws again what changed; charts keep their zoom.
function update() {
  if (state.view === "curves" && cards.size) {
    for (const made of cards.values()) if (made.visible) refreshCard(made);
  } else render();
}

function show(view) {
  state.view = view in VIEWS ? view : "curves";
  if (location.hash !== `#${state.view}`) history.replaceState(null, "", `#${state.view}`);
  $("main").scrollTop = 0;
  render().then(readBest).catch(() => {}); // a lost connection is told by the next poll
}

async function refresh() {
  try {
    const data = await ask("runs");
    $("status").className = embedded ? "" : "live";
    if (data.version === state.data.version && state.loaded) return void await refreshFiles();
    const before = JSON.stringify([state.data.metrics.map((m) => m.name), state.data.fields]);
    const count = state.data.runs.length;
    state.data = data;
    state.loaded = true;
    drawRuns();
    const after = JSON.stringify([data.metrics.map((m) => m.name), data.fields]);
    const isTyping = $("main").contains(document.activeElement) && document.activeElement.matches("select, input");
    if (before !== after || !count !== !data.runs.length) await render();
    else if (state.view === "curves") update();
    else if ((state.view === "table" || state.view === "sweep") && !isTyping) await render();
    else await refreshFiles();
    await readBest();
  } catch (error) {
    $("status").className = "lost";
    $("status").textContent = state.loaded ? "connection lost, trying again" : error.message;
    state.data.version = null;
  }
}

// Pictures, texts and logs grow without the numbers of a run.
async function refreshFiles() {
  if (state.view === "media") await refreshMedia();
  if (state.view === "logs") await refreshLogs();
}

// Best values need whole logs: they are read for the views that show them.
async function readBest() {
  if (!["table", "sweep"].includes(state.view) || state.bestOf === state.data.version) return;
  const version = state.data.version;
  state.best = await ask("best");
  state.bestOf = version;
  const isTyping = document.activeElement && document.activeElement.matches("main select, main input");
  if (["table", "sweep"].includes(state.view) && !isTyping) await render();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawRuns();
  if (state.loaded) render();
}

function start() {
  $("tabs").append(...Object.entries(VIEWS).map(([view, [title]], i) => h("button", {
    type: "button", role: "tab", "data-view": view, title: `${title} (${i + 1})`, onclick: () => show(view) }, title)));
  $("filter").addEventListener("input", (event) => { state.filter = event.target.value; drawRuns(); update(); });
  $("all").addEventListener("click", () => choose(null));
  $("none").addEventListener("click", () => choose(new Set()));
  $("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  window.addEventListener("hashchange", () => show(location.hash.slice(1)));
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const view = Object.keys(VIEWS)[Number(event.key) - 1];
    if (view && !event.target.matches("canvas")) show(view);
    if (event.key === "/") { event.preventDefault(); $("filter").focus(); }
  });
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  document.documentElement.dataset.theme = prefers.matches ? "dark" : "light";
  prefers.addEventListener("change", () => setTheme(prefers.matches ? "dark" : "light"));
  state.view = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "curves";
  const poll = async () => {
    if (!document.hidden || !state.loaded) await refresh();
    if (!embedded) setTimeout(poll, 2000);
  };
  render();
  poll();
}

start();
