// Curves over the cycle, with a cursor at the frame that is shown; dragging over a chart moves the film.
const LEVELS = ["global", "basal", "mid", "apical"];
const times = report.times ?? Array.from({ length: report.frames }, (_, t) => t + 1);
const MARGIN = { left: 42, right: 10, top: 10, bottom: 30 };

function svgElement(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// Round numbers between two values, about n of them.
function ticks(low, high, n) {
  const rough = (high - low) / n, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

// A chart in the svg of this id: `curves` gives [{name, values, className, colour}], listed in their order, the last on
// top; those without a name are unlisted.
class Chart {
  constructor(id, unit, curves) {
    Object.assign(this, { svg: element(id), list: element(`${id}-values`), unit, curves });
    const drag = (event) => {
      stop();
      showFrame(this.frameAt(event.clientX));
    };
    this.svg.addEventListener("pointerdown", (event) => {
      this.svg.setPointerCapture(event.pointerId);
      drag(event);
    });
    this.svg.addEventListener("pointermove", (event) => event.buttons && drag(event));
  }

  frameAt(clientX) {
    const at = clientX - this.svg.getBoundingClientRect().left;
    const distance = times.map((_, t) => Math.abs(this.x(t) - at));
    return distance.indexOf(Math.min(...distance));
  }

  draw() {
    if (this.svg.id === "strain") this.unit = strainOf().unit;
    const width = this.svg.clientWidth, height = this.svg.clientHeight, shown = this.curves();
    const values = [0, ...shown.flatMap((curve) => curve.values)];
    const [low, high] = [Math.min(...values), Math.max(...values)], pad = 0.06 * (high - low || 1);
    const [bottom, top] = [low < 0 ? low - pad : 0, high > 0 ? high + pad : pad];
    const inner = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
    this.x = (t) => MARGIN.left + (inner[0] * (times[t] - times[0])) / (times.at(-1) - times[0] || 1);
    this.y = (value) => MARGIN.top + (inner[1] * (top - value)) / (top - bottom);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...this.axes(width, height, bottom, top), ...shown.map((curve) => this.line(curve)));
    this.cursor = svgElement("g", {});
    this.svg.append(this.cursor);
    this.shown = shown.filter((curve) => curve.name);
    this.follow();
  }

  axes(width, height, bottom, top) {
    const right = width - MARGIN.right, floor = height - MARGIN.bottom;
    const across = ticks(bottom, top, 5).flatMap((value) => [
      svgElement("line", { class: value ? "line" : "line zero", x1: MARGIN.left, x2: right, y1: this.y(value), y2: this.y(value) }),
      svgElement("text", { x: MARGIN.left - 6, y: this.y(value) + 4, "text-anchor": "end" }, String(+value.toFixed(2)).replace("-", "−")),
    ]);
    const span = times.at(-1) - times[0];
    const down = ticks(times[0], times.at(-1), width > 420 ? 8 : 4).filter((value) => report.times || Number.isInteger(value)).map((value) =>
      svgElement("text", { x: MARGIN.left + ((right - MARGIN.left) * (value - times[0])) / span, y: floor + 15, "text-anchor": "middle" }, String(+value.toFixed(2))));
    const unit = svgElement("text", { x: right, y: floor + 27, "text-anchor": "end" }, report.times ? "ms" : "frame");
    return [...across, ...down, unit, svgElement("text", { x: 2, y: MARGIN.top + 2 }, this.unit)];
  }

  line({ values, className, colour }) {
    const at = values.map((value, t) => `${this.x(t).toFixed(1)},${this.y(value).toFixed(1)}`).join(" ");
    return svgElement("polyline", { class: `curve ${className}`, points: at, style: `--colour: ${colour}` });
  }

  // The cursor, and the values there.
  follow() {
    if (!this.x) return;
    const x = this.x(state.t), height = this.svg.clientHeight;
    const dots = this.shown.map(({ values, colour }) =>
      svgElement("circle", { class: "dot", cx: x, cy: this.y(values[state.t]), r: 4, style: `--colour: ${colour}` }));
    this.cursor.replaceChildren(svgElement("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom }), ...dots);
    this.list.replaceChildren(...this.shown.map(({ name, values, className, colour }) => {
      const item = document.createElement("li"), here = document.createElement("span"), value = document.createElement("b");
      item.className = className;
      item.style.setProperty("--colour", colour);
      value.textContent = toFixed(values[state.t], 1);
      here.append(value, ` ${this.unit}`);
      item.append(`${name} `, here);
      return item;
    }));
  }
}

const strainOf = () => report.strain[element("measure").value];
function strainCurves() {
  const { regions } = strainOf(), curve = (name, className, colour) => ({ name, className, colour, values: regions[name] });
  const faint = report.segments.filter(({ region }) => regions[region] && region !== state.segment)
    .map(({ region }) => ({ ...curve(region, "faint", "var(--quiet)"), name: "" }));
  const levels = LEVELS.filter((name) => regions[name]).map((name) => curve(name, name === "global" ? "main" : name, `var(--${name})`));
  return [...faint, ...levels, ...(regions[state.segment] ? [curve(state.segment, "chosen", "var(--ink)")] : [])];
}
const volumeCurves = () =>
  Object.entries(report.volumes).map(([name, values]) => ({ name, values, className: name === "LV" ? "lead" : "", colour: `var(--${name})` }));

const charts = [];
if (report.strain) charts.push(new Chart("strain", "%", strainCurves));
if (report.volumes) charts.push(new Chart("volumes", "ml", volumeCurves));
