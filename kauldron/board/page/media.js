// What runs wrote to files: pictures, histograms, texts and logs, which grow while they run.
"use strict";

const MOST_BESIDE = 6; // runs side by side
const DESCRIPTIONS = new Set(["config", "parameters", "element_spec", "context_spec", "hparams"]);

// The view that is shown: `key` tells its structure, `cards` what to update.
const shown = { key: null, cards: new Map() };

async function mediaView(main) {
  const { ticket } = render;
  const runs = someRuns(main);
  if (!runs.length) return void main.append(h("p", { class: "muted" }, "Choose runs on the left."));
  const found = await mediaOf(runs);
  const cards = new Map();
  const holder = main.appendChild(h("div"));
  for (const [title, families] of found) {
    const made = [...families].map(([tag, parts]) => mediaCard(tag, parts, runs.length > 1));
    made.forEach((card) => cards.set(card.tag, card));
    const wide = runs.length > 1 ? "" : "grid";
    holder.append(h("h2", {}, title), h("div", { class: wide }, made.map((card) => card.element)));
  }
  if (!cards.size) {
    const who = runs.length > 1 ? "These runs have" : "This run has";
    holder.append(h("p", { class: "muted" }, `${who} written no pictures, histograms or texts.`));
  }
  if (ticket === render.ticket) Object.assign(shown, { key: structureOf(found), cards });
}

async function refreshMedia() {
  const found = await mediaOf(mediaRuns());
  if (state.view !== "media") return;
  if (structureOf(found) !== shown.key) return void await render();
  for (const families of found.values()) {
    for (const [tag, parts] of families) shown.cards.get(tag).update(parts);
  }
}

// From titles to families, from their tags to `{ run, items }` of each run that has some.
async function mediaOf(runs) {
  const answers = await Promise.all(runs.map((run) => ask("media", { run: run.name })));
  const found = new Map(["Pictures", "Histograms", "Texts", "What the run consists of"].map((title) => [title, new Map()]));
  answers.forEach((items, index) => items.forEach((item) => {
    const families = found.get(titleOf(item));
    // `name/0`, `name/1`, ... are the pictures of one batch.
    const tag = item.kind === "image" ? item.tag.replace(/\/\d+$/, "") : item.tag;
    const parts = families.get(tag) || families.set(tag, []).get(tag);
    const last = parts[parts.length - 1];
    if (last && last.run === runs[index]) last.items.push(item);
    else parts.push({ run: runs[index], items: [item] });
  }));
  return new Map([...found].filter(([, families]) => families.size));
}

function titleOf(item) {
  if (item.kind === "image") return "Pictures";
  if (item.kind === "histogram") return "Histograms";
  return DESCRIPTIONS.has(item.tag.split("/").pop()) ? "What the run consists of" : "Texts";
}

function structureOf(found) {
  const families = [...found.values()].flatMap((tags) => [...tags]);
  return JSON.stringify(families.map(([tag, parts]) => [tag, parts.map((part) => [part.run.name, part.items.length])]));
}

function mediaCard(tag, parts, beside) {
  const isHistogram = parts[0].items[0].kind === "histogram";
  const label = h("span");
  const slider = h("input", { type: "range", min: 0, "aria-label": `Step of ${tag}`, oninput: () => draw() });
  const places = new Map(parts.map((part) => [part.run.name, h("div", { class: "content" })]));
  const columns = parts.map(({ run }) => h("div", { class: "run" }, beside ? runTitle(run) : null, places.get(run.name)));
  const element = h("section", { class: beside ? "card more" : "card" }, h("header", {}, h("h3", {}, tag)),
    isHistogram ? null : h("div", { class: "step" }, slider, label), h("div", { class: beside ? "beside" : "" }, columns));
  let steps = [];
  const drawn = new Map(); // by run, what its place shows

  const draw = () => {
    const step = steps[Number(slider.value)];
    label.textContent = `step ${number(step)}`;
    for (const part of parts) {
      const own = stepsOf([part]).filter((known) => known <= step).pop();
      const what = isHistogram ? JSON.stringify(part.items[0].steps) : own;
      if (drawn.has(part.run.name) && drawn.get(part.run.name) === what) continue;
      drawn.set(part.run.name, what);
      drawPart(part, own, places.get(part.run.name), () => drawn.get(part.run.name) === what);
    }
  };

  // The step that was picked by hand; otherwise the newest is shown.
  const picked = () => (Number(slider.value) < steps.length - 1 ? steps[Number(slider.value)] : undefined);

  const update = (newer, step = picked()) => {
    parts = newer;
    steps = stepsOf(parts);
    slider.max = steps.length - 1;
    slider.value = steps.includes(step) ? steps.indexOf(step) : steps.length - 1;
    slider.hidden = steps.length < 2;
    draw();
  };

  const before = shown.cards.get(tag); // drawn again: the same step
  update(parts, before && before.picked ? before.picked() : undefined);
  return { tag, element, update, picked };
}

function stepsOf(parts) {
  const steps = parts.flatMap((part) => part.items.flatMap((item) => item.steps));
  return [...new Set(steps)].sort((a, b) => a - b);
}

function runTitle(run) {
  const swatch = h("span", { class: "swatch" });
  swatch.style.background = swatch.style.borderColor = colorOf(run);
  return h("div", { class: "title", title: describe(run) }, swatch, run.name);
}

async function drawPart({ run, items }, step, place, isCurrent) {
  if (step === undefined) return place.replaceChildren(h("p", { class: "muted" }, "Not yet at this step."));
  let content;
  try {
    content = await drawItem(run, items, step);
  } catch (error) {
    content = h("p", { class: "problem" }, error.message);
  }
  if (isCurrent()) place.replaceChildren(content);
}

async function drawItem(run, items, step) {
  const [{ kind, tag }] = items;
  if (kind === "histogram") {
    const found = await ask("histograms", { run: run.name, tag });
    const canvas = h("canvas", { class: "chart", role: "img", "aria-label": `${tag}: ${found.length} steps` });
    new ResizeObserver(() => charts.heatmap(canvas, found)).observe(canvas);
    return canvas;
  }
  if (kind === "image") {
    const images = items.filter((item) => item.steps.includes(step)).map((item) => h("img", {
      src: fileUrl("image", { run: run.name, tag: item.tag, step }), alt: `${item.tag} at step ${step}` }));
    await Promise.all(images.map((image) => image.decode().catch(() => {}))); // what is shown stays until then
    return h("div", { class: "pictures" }, images);
  }
  const text = await ask("text", { run: run.name, tag, step });
  return matrixOf(text) || tableOf(text) || h("pre", { class: text.includes("|") ? "" : "wrap" }, text.replace(/^```\w*\n|\n```$/g, ""));
}

// A table of true and predicted classes, as a picture.
function matrixOf(text) {
  const lines = text.trim().split("\n").map((line) => line.replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  if (!/^true\b.*\bpred/.test(lines[0][0]) || lines.length < 3) return null;
  const [header, , ...rows] = lines;
  const values = rows.map((row) => row.slice(1).map(Number));
  if (values.some((row) => row.length !== header.length - 1 || row.some(Number.isNaN))) return null;
  const cell = (value, row) => {
    const share = value / Math.max(1e-12, row.reduce((a, b) => a + b, 0));
    const td = h("td", { title: `${(100 * share).toFixed(1)} % of this class`, class: value ? "" : "zero" }, value ? number(value) : "·");
    td.style.background = `rgba(var(--heat), ${(0.05 + 0.85 * share).toFixed(3)})`;
    if (share > 0.55) td.style.color = isDark() ? "#10131c" : "#fff";
    return td;
  };
  return h("div", { class: "scroll" }, h("table", { class: header.slice(1).some((name) => name.length > 3) ? "heat named" : "heat" },
    h("thead", {}, h("tr", {}, h("th", { class: "axis" }, "true \\ predicted"), header.slice(1).map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((row, i) => h("tr", {}, h("th", { scope: "row" }, row[0]), values[i].map((value) => cell(value, values[i])))))));
}

// A text that is a table, as a table; what follows it stays a text.
function tableOf(text) {
  const lines = text.trim().split("\n");
  const count = lines.findIndex((line) => !line.startsWith("|"));
  const rows = (count < 0 ? lines : lines.slice(0, count)).map((line) => line.replace(/^\||\|\s*$/g, "").split("|").map((cell) => cell.trim()));
  if (rows.length < 3 || !rows[1].every((cell) => /^:?-+:?$/.test(cell))) return null;
  const rest = count < 0 ? "" : lines.slice(count).join("\n").trim();
  return h("div", {}, h("div", { class: "scroll short" }, h("table", {}, h("thead", {}, h("tr", {}, rows[0].map((cell) => h("th", {}, cell)))),
    h("tbody", {}, rows.slice(2).map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))))
  , rest ? h("p", { class: "muted" }, rest) : null);
}

//
// Logs
//

async function logsView(main) {
  const { ticket } = render;
  const run = oneRun(main);
  if (!run) return;
  const holder = main.appendChild(h("div"));
  const files = await ask("files", { run: run.name });
  const cards = new Map(files.logs.map((name) => [name, { pre: h("pre", { class: "wrap" }, "…"), size: null }]));
  for (const [name, { pre }] of cards) holder.append(h("section", { class: "card more" }, h("header", {}, h("h3", {}, name)), pre));
  if (ticket !== render.ticket) return;
  Object.assign(shown, { key: logsKey(run, files), cards });
  if (!files.logs.length) holder.append(h("p", { class: "muted" }, "This run has no logs: those of launched jobs are kept in logs/."));
  if (files.traces.length) {
    holder.append(h("h2", {}, "Profile traces"),
      h("p", { class: "muted" }, "A .trace.json.gz opens at ui.perfetto.dev, an .xplane.pb in xprof or TensorBoard."),
      h("ul", { class: "files" }, files.traces.map((name) => h("li", {}, embedded ? name
        : h("a", { href: fileUrl("trace", { run: run.name, name }), download: true }, name)))));
  }
  readLogs(run, files);
}

const logsKey = (run, files) => JSON.stringify([run.name, files.logs, files.traces]);

async function refreshLogs() {
  const run = theRun();
  const files = run && await ask("files", { run: run.name });
  if (state.view !== "logs" || !files) return;
  if (logsKey(run, files) !== shown.key) await render();
  else await readLogs(run, files);
}

// Reads what has grown; who looks at the end of a log stays there.
async function readLogs(run, files) {
  await Promise.all(files.logs.map(async (name, index) => {
    const card = shown.cards.get(name);
    if (!card || card.size === files.sizes[index]) return;
    const isFirst = card.size === null;
    card.size = files.sizes[index];
    const { pre } = card;
    const text = await ask("log", { run: run.name, name }).catch((error) => error.message);
    const follows = isFirst || pre.scrollHeight - pre.scrollTop - pre.clientHeight < 8;
    pre.textContent = text;
    if (follows) pre.scrollTop = pre.scrollHeight;
  }));
}

//
// Which runs
//

function theRun() {
  const runs = state.data.runs;
  return runs.find((run) => run.name === state.run) || chosenRuns()[0] || runs[0];
}

function oneRun(main) {
  const run = theRun();
  if (run) main.append(h("div", { class: "controls" }, runChoice([], run.name)));
  return run;
}

// Whether to show the runs that are chosen on the left, rather than one.
function isBeside() {
  const count = chosenRuns().length;
  return state.run === "" || (state.run === null && state.chosen !== null && count > 1 && count <= MOST_BESIDE);
}

function mediaRuns() {
  return isBeside() ? chosenRuns().slice(0, MOST_BESIDE) : [theRun()].filter(Boolean);
}

function someRuns(main) {
  const runs = mediaRuns();
  const chosen = chosenRuns().length;
  const note = isBeside() && chosen > MOST_BESIDE ? `the first ${MOST_BESIDE} of ${chosen} chosen runs` : "";
  main.append(h("div", { class: "controls" },
    runChoice([["", "chosen runs, side by side"]], isBeside() ? "" : (runs[0] || {}).name), h("span", { class: "muted" }, note)));
  return runs;
}

function runChoice(first, value) {
  return select("run", "run", [...first, ...state.data.runs.map((run) => [run.name, run.name])], value,
    (name) => { state.run = name; render(); });
}
