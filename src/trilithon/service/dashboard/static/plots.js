// Draws the lines of an hour with uPlot, and adds what comes after the last point.
"use strict";

const COLOURS = {
  light: { lines: ["#1f5ba8", "#b3261e", "#8a5a00"], grid: "#e6e9ee", text: "#59626f", mark: "#b3261e" },
  dark: { lines: ["#8cb8f2", "#ff938a", "#e0b25c"], grid: "#262e38", text: "#9ba6b5", mark: "#ff938a" },
};
const HOUR_S = 3600;

function theme() {
  const chosen = document.documentElement.dataset.theme;
  return COLOURS[chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")];
}

function short(value) {
  if (value == null) return "n/a";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(1) + "M";
  if (size >= 1e4) return (value / 1e3).toFixed(1) + "k";
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toPrecision(3).replace(/\.?0+$/, "");
}

function shown(value, unit) {
  return value == null ? "n/a" : short(value) + unit;
}

function clock(at) {
  return at == null ? "" : new Date(1000 * at).toISOString().slice(11, 19);
}

class Plot {
  constructor(element) {
    this.element = element;
    this.names = element.dataset.lines.split(" ");
    this.data = [[], ...this.names.map(() => [])];
    this.marks = new Set();
    this.draw();
    new ResizeObserver(() => this.resize()).observe(element);
    // The intent was changed.
    const thresholds = { attributes: true, attributeFilter: ["data-thresholds"] };
    new MutationObserver(() => this.draw()).observe(element, thresholds);
  }

  get size() {
    return { width: this.element.clientWidth, height: this.element.clientWidth < 480 ? 165 : 200 };
  }

  // The thresholds on the page, `name:limit` each: in the colour of their line where there are several.
  limits({ lines, mark }) {
    return (this.element.dataset.thresholds || "").split(" ").filter(Boolean).map((text) => {
      const [name, limit] = text.split(":");
      const line = this.names.length > 1 ? this.names.indexOf(name) : -1;
      return { value: Number(limit), colour: line < 0 ? mark : lines[line] };
    });
  }

  resize() {
    if (this.plot && this.plot.width !== this.size.width) this.plot.setSize(this.size);
  }

  draw() {
    if (this.plot) this.plot.destroy();
    const { lines, grid, text } = theme();
    const { labels, unit, log } = this.element.dataset;
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
    const limits = this.limits(theme());
    const values = limits.map((limit) => limit.value);
    const [least, most] = [Math.min(...values), Math.max(0, ...values)];
    const options = {
      ...this.size,
      padding: [10, 12, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      legend: { live: true },
      scales: {
        x: { time: true },
        y: log !== undefined
          ? { distr: 3, range: (_, low, high) => uPlot.rangeLog(Math.max(0.1, Math.min(low, least)), Math.max(high, most, 1), 10, true) }
          : { range: (_, low, high) => [0, Math.max(high, most, 0.01) * 1.08] },
      },
      axes: [{ ...axis, space: 90, size: 30, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : short(tick))) }],
      series: [
        { label: "UTC", value: (plot, at) => clock(at ?? plot.data[0][plot.data[0].length - 1]) },
        ...this.names.map((name, i) => ({
          label: labels.split(",")[i],
          stroke: name === "maximum" ? text : lines[i],
          width: name === "maximum" ? 1 : 1.6,
          dash: name === "maximum" ? [5, 4] : undefined,
          fill: name === "utility" ? lines[i] + "22" : undefined,
          points: { show: false },
          spanGaps: false,
          // Without a cursor, the last value.
          value: (plot, value, line, at) => shown(at == null ? plot.data[line][plot.data[line].length - 1] : value, unit),
        })),
      ],
      hooks: {
        drawAxes: [(plot) => this.drawMarks(plot, text)],
        draw: limits.map(({ value, colour }) => (plot) => this.drawLimit(plot, value, colour)),
      },
    };
    this.plot = new uPlot(options, this.data, this.element);
    this.element.dataset.limits = values.join(" ");
  }

  drawLimit(plot, limit, colour) {
    const y = plot.valToPos(limit, "y", true);
    const { left, width } = plot.bbox;
    this.drawLine(plot, colour, [6, 4], left, y, left + width, y);
  }

  // Decisions that changed something.
  drawMarks(plot, colour) {
    const { left, top, width, height } = plot.bbox;
    for (const at of this.marks) {
      const x = plot.valToPos(at, "x", true);
      if (x >= left && x <= left + width) this.drawLine(plot, colour, [2, 3], x, top, x, top + height);
    }
  }

  drawLine(plot, colour, dash, x1, y1, x2, y2) {
    plot.ctx.save();
    plot.ctx.strokeStyle = colour;
    plot.ctx.setLineDash(dash);
    plot.ctx.beginPath();
    plot.ctx.moveTo(x1, y1);
    plot.ctx.lineTo(x2, y2);
    plot.ctx.stroke();
    plot.ctx.restore();
  }

  async update() {
    if (this.busy) return;
    this.busy = true;
    try {
      const times = this.data[0];
      const last = times.length ? times[times.length - 1] : null;
      const query = last === null ? "" : `?since_s=${last}`;
      const answer = await fetch(this.element.dataset.plot + query);
      if (answer.ok) this.add(await answer.json());
    } finally {
      this.busy = false;
    }
  }

  add({ times, lines, marks }) {
    if (!times.length) return;
    for (const at of marks) this.marks.add(at);
    const rows = [times, ...this.names.map((name) => lines[name])];
    const all = this.data.map((column, i) => column.concat(rows[i]));
    const oldest = times[times.length - 1] - HOUR_S;
    const first = all[0].findIndex((at) => at >= oldest);
    this.data = all.map((column) => column.slice(first));
    this.plot.setData(this.data);
    this.element.dataset.points = this.data[0].length;
    this.element.dataset.last = this.data[0][this.data[0].length - 1];
  }
}

export function createPlots() {
  const plots = [...document.querySelectorAll("[data-plot]")].map((element) => new Plot(element));
  document.addEventListener("theme", () => plots.forEach((plot) => plot.draw()));
  return plots;
}
