// Charts on canvases: lines with bands, heat maps, parallel coordinates, scatter plots.
"use strict";

const charts = (() => {
  const css = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const FONT = '11px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
  const MARGIN = { left: 52, right: 10, top: 8, bottom: 24 };

  // A canvas in units of CSS pixels, sharp on any screen.
  function prepare(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    return { context, width, height };
  }

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en").replace(/,/g, "\u202f");
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
    return String(Number(value.toPrecision(4)));
  }

  function duration(seconds) {
    if (Math.abs(seconds) < 120) return `${number(Number(seconds.toPrecision(3)))} s`;
    if (Math.abs(seconds) < 7200) return `${number(Number((seconds / 60).toPrecision(3)))} min`;
    return `${number(Number((seconds / 3600).toPrecision(3)))} h`;
  }

  function ticks(low, high, count) {
    const span = high - low;
    if (!(span > 0)) return [low];
    const raw = span / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
      found.push(Number((i * step).toPrecision(12)));
    }
    return found;
  }

  // A map from values to pixels, linear or logarithmic, and back.
  function scale(low, high, from, to, log) {
    const f = log ? Math.log10 : (v) => v;
    const [a, b] = [f(low), f(high)];
    const span = b - a || 1;
    const map = (value) => from + ((f(value) - a) / span) * (to - from);
    map.back = (pixel) => {
      const v = a + ((pixel - from) / (to - from)) * span;
      return log ? 10 ** v : v;
    };
    map.ticks = (count) => {
      if (!log) return ticks(low, high, count);
      const powers = ticks(a, b, count).filter(Number.isInteger).map((p) => 10 ** p);
      return powers.length > 1 ? powers : ticks(low, high, count);
    };
    return map;
  }

  function range(arrays, log) {
    let [low, high] = [Infinity, -Infinity];
    for (const values of arrays) {
      for (const value of values) {
        if (value === null || (log && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    return low <= high ? [low, high] : null;
  }

  function axes(context, width, height, x, y, formatX, formatY) {
    context.strokeStyle = css("--grid");
    context.fillStyle = css("--muted");
    context.lineWidth = 1;
    context.beginPath();
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of y.ticks(height / 45)) {
      const at = Math.round(y(tick)) + 0.5;
      context.moveTo(MARGIN.left, at);
      context.lineTo(width - MARGIN.right, at);
      context.fillText(formatY(tick), MARGIN.left - 7, at);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of x.ticks(width / 95)) {
      const at = Math.round(x(tick)) + 0.5;
      context.moveTo(at, height - MARGIN.bottom);
      context.lineTo(at, height - MARGIN.bottom + 4);
      const half = context.measureText(formatX(tick)).width / 2;
      context.fillText(formatX(tick), Math.min(at, width - half - 1), height - MARGIN.bottom + 7);
    }
    context.stroke();
  }

  // Lines over x. `options`: series, formatX, log, onZoom(), label.
  class Lines {
    constructor(canvas, options) {
      this.canvas = canvas;
      this.view = null;
      this.hover = null;
      this.drag = null;
      this.frame = 0;
      this.set(options);
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "img");
      canvas.addEventListener("pointermove", (event) => this.move(event));
      canvas.addEventListener("pointerleave", () => this.leave());
      canvas.addEventListener("pointerdown", (event) => this.down(event));
      canvas.addEventListener("pointerup", (event) => this.up(event));
      canvas.addEventListener("dblclick", () => this.zoom(null));
      canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      canvas.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => this.redraw()).observe(canvas);
    }

    set(options) {
      this.options = { ...this.options, ...options };
      this.canvas.setAttribute("aria-label",
        `${this.options.label}: ${this.options.series.length} curves. Arrows move, plus and minus zoom, 0 shows all.`);
      this.redraw();
    }

    redraw() {
      if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
    }

    draw() {
      const { context, width, height } = prepare(this.canvas);
      if (!width) return;
      const { series, log } = this.options;
      const formatX = this.options.formatX || number;
      const all = range(series.map((s) => s.x), false);
      if (!all) {
        context.fillStyle = css("--faint");
        context.textAlign = "center";
        context.fillText(this.options.empty || "No values of the chosen runs", width / 2, height / 2);
        return;
      }
      // What was zoomed into holds only a part of the points.
      this.all = this.view && this.all ? range([this.all, all], false) : all;
      const [x0, x1] = this.view || (all[0] === all[1] ? [all[0] - 1, all[1] + 1] : all);
      const seen = [];
      for (const s of series) {
        for (let i = 0; i < s.x.length; i++) {
          if (s.x[i] < x0 || s.x[i] > x1) continue;
          seen.push(s.y[i]);
          if (s.low && s.low[i] !== null) seen.push(s.low[i], s.high[i]);
        }
      }
      const found = range([seen], log) || range(series.map((s) => s.y), log) || [0, 1];
      let [y0, y1] = found;
      if (log) [y0, y1] = [y0 / 1.1, y1 * 1.1];
      else {
        const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
        [y0, y1] = [y0 - pad, y1 + pad];
      }
      const x = scale(x0, x1, MARGIN.left, width - MARGIN.right, false);
      const y = scale(y0, y1, height - MARGIN.bottom, MARGIN.top, log);
      this.x = x;
      axes(context, width, height, x, y, formatX, number);
      context.save();
      context.beginPath();
      context.rect(MARGIN.left - 3, 0, width - MARGIN.left - MARGIN.right + 6, height - MARGIN.bottom);
      context.clip();
      context.lineJoin = "round";
      for (const s of series) this.line(context, s, x, y, log, series.length);
      if (this.drag && this.drag.moved) {
        context.fillStyle = css("--accent");
        context.globalAlpha = 0.12;
        context.fillRect(this.drag.from, 0, this.drag.to - this.drag.from, height - MARGIN.bottom);
        context.globalAlpha = 1;
      } else if (this.hover !== null) this.cross(context, x, y, height, log);
      context.restore();
    }

    line(context, s, x, y, log, count) {
      const usable = (v) => v !== null && (!log || v > 0);
      context.strokeStyle = context.fillStyle = s.color;
      if (s.low) {
        context.globalAlpha = 0.16;
        context.beginPath();
        s.x.forEach((at, i) => usable(s.high[i]) && context.lineTo(x(at), y(s.high[i])));
        for (let i = s.x.length - 1; i >= 0; i--) if (usable(s.low[i])) context.lineTo(x(s.x[i]), y(s.low[i]));
        context.fill();
      }
      const stroke = (values, alpha, lineWidth) => {
        context.globalAlpha = alpha;
        context.lineWidth = lineWidth;
        context.beginPath();
        let pen = false;
        let points = 0;
        for (let i = 0; i < s.x.length; i++) {
          if (!usable(values[i])) { pen = false; continue; }
          if (pen) context.lineTo(x(s.x[i]), y(values[i]));
          else context.moveTo(x(s.x[i]), y(values[i]));
          pen = true;
          points++;
        }
        context.stroke();
        if (points && points < 12) {
          for (let i = 0; i < s.x.length; i++) {
            if (!usable(values[i])) continue;
            context.beginPath();
            context.arc(x(s.x[i]), y(values[i]), 2.2, 0, 7);
            context.fill();
          }
        }
      };
      const strong = count > 60 ? 0.45 : count > 20 ? 0.7 : 1;
      if (s.raw) stroke(s.raw, 0.2 * strong, 1);
      stroke(s.y, strong, count > 60 ? 1 : 1.7);
      context.globalAlpha = 1;
    }

    cross(context, x, y, height, log) {
      context.strokeStyle = css("--faint");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x(this.hover.at), 0);
      context.lineTo(x(this.hover.at), height - MARGIN.bottom);
      context.stroke();
      for (const point of this.hover.points) {
        if (log && point.y <= 0) continue;
        context.fillStyle = point.color;
        context.beginPath();
        context.arc(x(point.x), y(point.y), 3.2, 0, 7);
        context.fill();
      }
    }

    move(event) {
      const box = this.canvas.getBoundingClientRect();
      const at = event.clientX - box.left;
      if (!this.x) return;
      if (this.drag) {
        if (this.drag.pan) {
          const shift = this.x.back(this.drag.from) - this.x.back(at);
          this.view = this.drag.view.map((v) => v + shift);
        } else this.drag.to = at;
        this.drag.moved = Math.abs(at - this.drag.from) > 4;
        this.redraw();
        return;
      }
      const target = this.x.back(at);
      const points = [];
      for (const s of this.options.series) {
        let [low, high] = [0, s.x.length - 1];
        while (high - low > 1) {
          const middle = (low + high) >> 1;
          if (s.x[middle] < target) low = middle; else high = middle;
        }
        const i = Math.abs(s.x[low] - target) < Math.abs(s.x[high] - target) ? low : high;
        if (i >= 0 && s.y[i] !== null) points.push({ x: s.x[i], y: s.y[i], name: s.name, color: s.color, spread: s.low ? (s.high[i] - s.low[i]) / 2 : null });
      }
      if (!points.length) return;
      const nearest = points.reduce((a, b) => (Math.abs(a.x - target) <= Math.abs(b.x - target) ? a : b));
      points.sort((a, b) => b.y - a.y);
      const shown = points.slice(0, 10);
      this.hover = { at: nearest.x, points: points.length > 40 ? [] : points };
      const rows = shown.map((p) => [p.color, p.name, number(p.y) + (p.spread ? ` ± ${number(Number(p.spread.toPrecision(2)))}` : "")]);
      if (points.length > shown.length) rows.push([null, `and ${points.length - shown.length} below`, ""]);
      tooltip(event.clientX, event.clientY, `${this.options.nameX || "step"} ${(this.options.formatX || number)(nearest.x)}`, rows);
      this.redraw();
    }

    leave() {
      this.hover = null;
      hideTooltip();
      this.redraw();
    }

    down(event) {
      if (!this.x || event.button) return;
      const from = event.clientX - this.canvas.getBoundingClientRect().left;
      this.drag = { from, to: from, moved: false, pan: event.shiftKey, view: this.view || this.all };
      this.canvas.setPointerCapture(event.pointerId);
      hideTooltip();
    }

    up() {
      const drag = this.drag;
      this.drag = null;
      if (!drag || !drag.moved) return this.redraw();
      if (drag.pan) return this.zoom(this.view);
      const ends = [this.x.back(drag.from), this.x.back(drag.to)].sort((a, b) => a - b);
      this.zoom(ends);
    }

    wheel(event) {
      if (!this.x || !(event.ctrlKey || event.metaKey || this.view || document.activeElement === this.canvas)) return;
      event.preventDefault();
      const at = this.x.back(event.clientX - this.canvas.getBoundingClientRect().left);
      this.stretch(at, event.deltaY > 0 ? 1.25 : 0.8);
    }

    stretch(at, factor) {
      const [a, b] = this.view || this.all;
      const [x0, x1] = [at - (at - a) * factor, at + (b - at) * factor];
      this.zoom(x0 <= this.all[0] && x1 >= this.all[1] ? null : [x0, x1]);
    }

    key(event) {
      if (!this.all || event.ctrlKey || event.metaKey || event.altKey) return;
      const [a, b] = this.view || this.all;
      const actions = {
        ArrowLeft: () => this.zoom([a - (b - a) / 5, b - (b - a) / 5]),
        ArrowRight: () => this.zoom([a + (b - a) / 5, b + (b - a) / 5]),
        "+": () => this.stretch((a + b) / 2, 0.7),
        "-": () => this.stretch((a + b) / 2, 1.4),
        0: () => this.zoom(null),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      event.stopPropagation();
      actions[event.key]();
    }

    // What is known is drawn at once; finer points may come later.
    zoom(view) {
      this.view = view;
      this.redraw();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.options.onZoom && this.options.onZoom(), 120);
    }
  }

  // One column per step, one row per bin; darker is more.
  function heatmap(canvas, histograms) {
    const { context, width, height } = prepare(canvas);
    const ends = range(histograms.map((h) => h.edges), false);
    if (!ends || !width) return;
    const y = scale(ends[0], ends[1] > ends[0] ? ends[1] : ends[0] + 1, height - MARGIN.bottom, MARGIN.top, false);
    const x = scale(0, histograms.length, MARGIN.left, width - MARGIN.right, false);
    axes(context, width, height, { ticks: () => [] }, y, number, number);
    context.fillStyle = css("--muted");
    context.textAlign = "center";
    context.textBaseline = "top";
    const every = Math.ceil(histograms.length / Math.max(1, width / 80));
    histograms.forEach((h, i) => {
      const most = Math.max(...h.counts, 1e-9);
      h.counts.forEach((count, j) => {
        if (!count) return;
        const [top, bottom] = [y(h.edges[j + 1]), y(h.edges[j])];
        context.fillStyle = `rgba(${css("--heat")}, ${0.12 + (0.88 * count) / most})`;
        context.fillRect(x(i), top, Math.max(1, x(i + 1) - x(i) - 1), Math.max(1, bottom - top));
      });
      context.fillStyle = css("--muted");
      if (i % every === 0) context.fillText(number(h.step), (x(i) + x(i + 1)) / 2, height - MARGIN.bottom + 7);
    });
  }

  // An axis for anything: numbers (logarithmic where they span decades) or names.
  function axis(values, from, to) {
    const known = values.filter((v) => v !== null && v !== undefined);
    if (known.length && known.every((v) => typeof v === "number")) {
      const [low, high] = range([known], false);
      const log = low > 0 && high / low >= 20;
      const pad = (high - low || Math.abs(high) || 1) * 0.04;
      const map = log ? scale(low / 1.1, high * 1.1, from, to, true) : scale(low - pad, high + pad, from, to, false);
      const distinct = [...new Set(known)].sort((a, b) => a - b);
      const isClose = distinct.some((v, i) => i && Math.abs(map(v) - map(distinct[i - 1])) < 16);
      map.labels = distinct.length <= 6 && !isClose ? distinct : map.ticks(5);
      return map;
    }
    const names = [...new Set(known.map(String))].sort();
    const map = (v) => from + ((names.indexOf(String(v)) + 0.5) / Math.max(1, names.length)) * (to - from);
    map.labels = names.slice(0, 12);
    return map;
  }

  // A line per run through one axis per field.
  function parallel(canvas, columns, rows) {
    const { context, width, height } = prepare(canvas);
    if (!width || !columns.length) return;
    const [top, bottom] = [34, height - 16];
    const at = (i) => 70 + (i * (width - 140)) / Math.max(1, columns.length - 1);
    const maps = columns.map((column) => axis(rows.map((r) => r.values[column]), bottom, top));
    for (const row of rows) {
      context.strokeStyle = row.color;
      context.globalAlpha = rows.length > 60 ? 0.45 : 0.75;
      context.lineWidth = 1.5;
      context.beginPath();
      let [lastX, lastY] = [null, null];
      columns.forEach((column, i) => {
        const value = row.values[column];
        if (value === null || value === undefined) { lastX = null; return; }
        const [px, py] = [at(i), maps[i](value)];
        if (lastX === null) context.moveTo(px, py);
        else context.bezierCurveTo((lastX + px) / 2, lastY, (lastX + px) / 2, py, px, py);
        [lastX, lastY] = [px, py];
      });
      context.stroke();
    }
    context.globalAlpha = 1;
    columns.forEach((column, i) => {
      context.strokeStyle = css("--faint");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(at(i), top - 6);
      context.lineTo(at(i), bottom + 4);
      context.stroke();
      context.fillStyle = css("--ink");
      context.textAlign = "center";
      context.textBaseline = "alphabetic";
      context.font = `600 ${FONT}`;
      context.fillText(column, at(i), 16, width / columns.length - 6);
      context.font = FONT;
      context.textAlign = i === columns.length - 1 ? "left" : "right";
      context.textBaseline = "middle";
      for (const label of maps[i].labels) {
        const shown = typeof label === "number" ? number(label) : label;
        const side = i === columns.length - 1 ? 8 : -8;
        const wide = context.measureText(shown).width;
        context.fillStyle = css("--card");
        context.globalAlpha = 0.8;
        context.fillRect(side > 0 ? at(i) + 6 : at(i) - 10 - wide, maps[i](label) - 7, wide + 4, 14);
        context.globalAlpha = 1;
        context.fillStyle = css("--muted");
        context.fillText(shown, at(i) + side, maps[i](label));
      }
    });
  }

  // A point per run; the nearest is named.
  function scatter(canvas, rows, nameX, nameY) {
    const { context, width, height } = prepare(canvas);
    const known = rows.filter((r) => r.x !== null && r.x !== undefined && r.y !== null && r.y !== undefined);
    if (!width || !known.length) return;
    const x = axis(known.map((r) => r.x), MARGIN.left + 6, width - MARGIN.right - 6);
    const y = axis(known.map((r) => r.y), height - MARGIN.bottom, MARGIN.top);
    const label = (v) => (typeof v === "number" ? number(v) : String(v));
    axes(context, width, height, Object.assign(x, { ticks: () => x.labels }),
      Object.assign(y, { ticks: () => y.labels }), label, label);
    for (const row of known) {
      context.fillStyle = row.color;
      context.globalAlpha = 0.8;
      context.beginPath();
      context.arc(x(row.x), y(row.y), 4.5, 0, 7);
      context.fill();
    }
    context.globalAlpha = 1;
    canvas.onpointerleave = hideTooltip;
    canvas.onpointermove = (event) => {
      const box = canvas.getBoundingClientRect();
      const far = (r) => Math.hypot(x(r.x) - (event.clientX - box.left), y(r.y) - (event.clientY - box.top));
      const nearest = known.reduce((a, b) => (far(a) <= far(b) ? a : b));
      if (far(nearest) > 30) return hideTooltip();
      tooltip(event.clientX, event.clientY, nearest.name, [[null, nameX, label(nearest.x)], [nearest.color, nameY, label(nearest.y)]]);
    };
  }

  function tooltip(left, top, title, rows) {
    const element = document.getElementById("tooltip");
    element.replaceChildren();
    const line = (parent, tag, text) => parent.appendChild(Object.assign(document.createElement(tag), { textContent: text }));
    line(element, "div", title).className = "muted";
    for (const [color, name, value] of rows) {
      const row = line(element, "div", "");
      if (color) {
        const swatch = line(row, "span", "");
        swatch.className = "swatch";
        swatch.style.background = color;
      }
      line(row, "span", name);
      line(row, "b", value);
    }
    element.hidden = false;
    const box = element.getBoundingClientRect();
    element.style.left = `${left + 16 + box.width > innerWidth ? left - 16 - box.width : left + 16}px`;
    element.style.top = `${Math.max(4, Math.min(top + 12, innerHeight - box.height - 6))}px`;
  }

  function hideTooltip() {
    document.getElementById("tooltip").hidden = true;
  }

  return { Lines, heatmap, parallel, scatter, number, duration, hideTooltip };
})();
