// The page: runs on the left, views on the right. Texts of runs only ever become text nodes.
// This file has what all views share, and the frame around them. The views: curves.js, tables.js,
// and media.js for what runs wrote to files; charts.js draws in canvases.
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
  if (isGrouped()) return hueColor(groupNames().indexOf(groupOf(run)));
  const values = colorValues();
  return hueColor(values ? values.indexOf(run.fields[state.color]) : state.data.runs.indexOf(run));
}

// Runs that differ in nothing but the field to group over are one group, of one colour.
const isGrouped = () => state.view === "curves" && state.data.fields.includes(state.group);

function groupOf(run) {
  return JSON.stringify(Object.entries(run.fields).filter(([field]) => field !== state.group));
}

// A group is named by what sets it apart from the other groups in sight.
function groupTitle(run, shown) {
  const differ = (field) => new Set(shown.map((other) => other.fields[field])).size > 1;
  const fields = Object.keys(run.fields).filter((field) => field !== state.group && differ(field));
  return fields.map((field) => `${field} ${number(run.fields[field])}`).join(", ") || "all runs";
}

let groups = {}; // the names of the groups, of which data and field
function groupNames() {
  if (groups.data !== state.data || groups.field !== state.group) {
    const names = [...new Set(state.data.runs.map(groupOf))];
    groups = { data: state.data, field: state.group, names };
  }
  return groups.names;
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
  const shown = chosenRuns();
  const values = isGrouped() ? groupNames() : colorValues();
  if (!values || values.length > HUES.length) return [];
  return values.flatMap((value, i) => {
    const run = shown.find((r) => (isGrouped() ? groupOf(r) : r.fields[state.color]) === value);
    if (!run) return [];
    const swatch = h("span", { class: "swatch" });
    swatch.style.background = swatch.style.borderColor = hueColor(i);
    return [h("span", { class: "key" }, swatch, isGrouped() ? groupTitle(run, shown) : number(value))];
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
    updateCards();
  } else render();
}

function show(view) {
  state.view = view in VIEWS ? view : "curves";
  if (location.hash !== `#${state.view}`) history.replaceState(null, "", `#${state.view}`);
  $("main").scrollTop = 0;
  drawRuns(); // colours mean groups in the view of curves only
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
