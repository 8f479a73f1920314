// Views that compare runs: the table, the sweep, and two configs side by side.
"use strict";

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
