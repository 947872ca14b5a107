"use strict";
const { values, groups, results } = data;
const columns = data.columns.filter(name => name !== "verdict" || values.verdict.some(Boolean));
const total = values.subject.length, height = 30, margin = 10, bins = 24;
const widths = { reason: "wide", notes: "wide", outlier: "middling" };
const isNumber = Object.fromEntries(columns.map(name => [name, values[name].some(value => typeof value === "number")]));
const headingOf = name => data.headings[name] ?? name;
const byId = id => document.getElementById(id);
const key = `vrnet cohort ${location.pathname}`;
let marks = {}, order = [], sorted = { name: "suspicion", up: false }, level = null, range = null;
try { marks = JSON.parse(localStorage.getItem(key)) || {}; } catch { /* storage may be off: marks last as long as the page */ }

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/* What a subject counts as: its verdict, or that it failed, or is left. */
const levelOf = row => values.status[row] === "done" ? values.verdict[row] || "done" : values.status[row] === "failed" ? "not done" : "left";
const colourOf = { good: "good", look: "look", failed: "failed", "not done": "failed", left: "left", done: "" };

const isMeasured = (value, row) => typeof value === "number" && values.status[row] === "done";

function drawCounts() {
  const counts = {};
  for (let row = 0; row < total; row++) counts[levelOf(row)] = (counts[levelOf(row)] || 0) + 1;
  for (const name of ["failed", "not done", "look", "good", "done", "left"].filter(name => counts[name])) {
    const words = { failed: "verdict failed", look: "look at it" }[name] || name;
    const button = element("button", { type: "button", className: colourOf[name] }, `${counts[name].toLocaleString("en")} ${words}`);
    button.setAttribute("aria-pressed", "false");
    button.onclick = () => { level = level === name ? null : name; pressOnly(button, level !== null); arrange(); };
    byId("counts").append(button);
  }
}

function pressOnly(button, isPressed) {
  for (const other of byId("counts").children) other.setAttribute("aria-pressed", String(other === button && isPressed));
}

function drawPlots() {
  for (const name of columns.filter(name => isNumber[name] && name !== "suspicion")) {
    const known = values[name].filter((value, row) => isMeasured(value, row)).sort((a, b) => a - b);
    const at = part => known[Math.round(part * (known.length - 1))];
    const low = at(.005), high = at(.995);
    if (!(high > low)) continue;
    const binOf = value => Math.min(bins - 1, Math.max(0, Math.floor((value - low) / (high - low) * bins)));
    const counts = new Array(bins).fill(0);
    for (const value of known) counts[binOf(value)]++;
    const top = Math.max(...counts), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 240 70");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${headingOf(name)}: median ${at(.5)}`);
    counts.forEach((count, bin) => {
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect"), tall = 68 * count / top;
      for (const [attribute, value] of Object.entries({ x: bin * 10 + 1, y: 70 - tall, width: 8, height: tall })) bar.setAttribute(attribute, value);
      bar.onclick = () => { range = row => isMeasured(values[name][row], row) && binOf(values[name][row]) === bin; arrange(); byId("table").scrollIntoView(); };
      svg.append(bar);
    });
    const ends = element("figcaption", {}, element("span", {}, low.toPrecision(3)), element("span", {}, high.toPrecision(3)));
    byId("plots").append(element("figure", {}, element("b", { title: name }, headingOf(name)), svg, ends));
  }
}

function drawGroups() {
  if (!groups.length) return;
  const by = byId("group").value, kinds = [...new Set(values[by])].sort();
  const measures = columns.filter(name => isNumber[name] && name !== by && name !== "suspicion");
  const line = (tag, title, cells) => element("tr", { title }, ...cells.map((cell, k) => element(k ? tag : "th", {}, cell)));
  const rows = measures.map(name => line("td", name, [headingOf(name), ...kinds.map(kind => spread(name, by, kind))]));
  byId("groups").replaceChildren(line("th", "", ["", ...kinds.map(kind => String(kind || "–"))]), ...rows);
}

function spread(name, by, kind) {
  const known = values[name].filter((value, row) => isMeasured(value, row) && values[by][row] === kind).sort((a, b) => a - b);
  const at = part => known[Math.round(part * (known.length - 1))].toPrecision(3);
  return known.length ? `${at(.5)} (${at(.05)} to ${at(.95)})` : "–";
}

/* Choose and sort the rows that are shown: the data stay as they are, and only numbers of rows move. */
function arrange() {
  const words = byId("find").value.trim().toLowerCase(), column = values[sorted.name], sign = sorted.up ? 1 : -1;
  const texts = words ? columns.filter(name => !isNumber[name]) : [];
  order = [];
  for (let row = 0; row < total; row++) {
    if (level !== null && levelOf(row) !== level) continue;
    if (range !== null && !range(row)) continue;
    if (words && !texts.some(name => String(values[name][row] ?? "").toLowerCase().includes(words))) continue;
    order.push(row);
  }
  order.sort((a, b) => {
    const [x, y] = [column[a], column[b]];
    if (x === y) return a - b;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return x < y ? -sign : sign;
  });
  byId("shown").textContent = `${order.length.toLocaleString("en")} of ${total.toLocaleString("en")}, by ${headingOf(sorted.name)}`;
  byId("body").style.height = `${order.length * height}px`;
  byId("table").scrollTop = 0;
  drawRows();
}

function drawHead() {
  const cells = columns.map(name => {
    const cell = element("div", { className: `cell ${isNumber[name] ? "number" : ""} ${widths[name] ?? ""}`, title: `${name}: click to sort` }, headingOf(name));
    cell.onclick = () => {
      sorted = { name, up: sorted.name === name ? !sorted.up : !isNumber[name] };
      for (const other of byId("head").children) other.classList.remove("sorted", "up");
      cell.classList.add("sorted", ...(sorted.up ? ["up"] : []));
      arrange();
    };
    return cell;
  });
  byId("head").replaceChildren(element("div", { className: "cell marks" }, "Looked at"), ...cells);
}

/* Only the rows in sight are in the page, however many there are. */
function drawRows() {
  const table = byId("table"), first = Math.max(0, Math.floor(table.scrollTop / height) - margin);
  const last = Math.min(order.length, Math.ceil((table.scrollTop + table.clientHeight) / height) + margin);
  byId("body").replaceChildren(...order.slice(first, last).map((row, k) => drawRow(row, first + k)));
}

function drawRow(row, place) {
  const made = element("div", { className: "row" }, marksOf(row), ...columns.map(name => cellOf(name, row)));
  made.style.top = `${place * height}px`;
  made.onmouseenter = () => preview(row);
  made.onmouseleave = () => { shownPicture = ""; byId("preview").hidden = true; };
  return made;
}

const fileOf = (row, form) => `${results}/${encodeURIComponent(values.subject[row])}/${encodeURIComponent(form.replaceAll("{subject}", values.subject[row]))}`;

function cellOf(name, row) {
  const value = values[name][row], text = value === null || value === undefined ? "" : String(value);
  const cell = element("div", { className: `cell ${isNumber[name] ? "number" : ""} ${widths[name] ?? ""}`, title: text });
  if (name === "subject" && values.status[row] === "done") cell.append(element("a", { href: fileOf(row, data.page) }, text));
  else if (name === "subject" && values.status[row] === "failed") cell.append(element("a", { href: `failures/${encodeURIComponent(value)}.txt` }, text));
  else cell.append(name === "outlier" ? headingOf(text) : text);
  if (name === "verdict" || name === "status") cell.classList.add(colourOf[value] || "none");
  return cell;
}

function marksOf(row) {
  const name = values.subject[row], cell = element("div", { className: "cell marks" });
  for (const [mark, sign] of [["good", "✓"], ["bad", "✗"]]) {
    const button = element("button", { type: "button", title: `looked at: ${mark}` }, sign);
    button.setAttribute("aria-pressed", String(marks[name] === mark));
    button.onclick = () => {
      if (marks[name] === mark) delete marks[name]; else marks[name] = mark;
      try { localStorage.setItem(key, JSON.stringify(marks)); } catch { /* as above */ }
      drawRows();
    };
    cell.append(button);
  }
  return cell;
}

/* The thumbnail holds fixed, moving and warped side by side: before and after flicker between the first and another. */
function preview(row) {
  if (values.status[row] !== "done") return;
  const picture = new Image(), wanted = fileOf(row, data.picture);
  shownPicture = wanted;
  picture.onload = () => {
    if (shownPicture !== wanted) return;
    for (const panel of byId("preview").querySelectorAll("div")) {
      Object.assign(panel.style, { width: `${2 * picture.naturalWidth / 3}px`, height: `${2 * picture.naturalHeight}px`, backgroundImage: `url("${wanted}")` });
    }
    byId("preview").hidden = false;
  };
  picture.src = wanted;
}

let shownPicture = "", isFixed = false;
setInterval(() => {
  isFixed = !isFixed;
  byId("preview").querySelectorAll("div").forEach((panel, k) => { panel.style.backgroundPosition = isFixed ? "0% 0" : `${50 * (k + 1)}% 0`; });
}, 450);

function exportMarks() {
  const cell = text => /^[=+\-@\t\r]/.test(text) ? `"'${text.replaceAll('"', '""')}"` : `"${text.replaceAll('"', '""')}"`;
  const lines = Object.entries(marks).map(([name, mark]) => `${cell(name)},${mark}`);
  const file = new Blob([["subject,looked_at", ...lines].join("\n") + "\n"], { type: "text/csv" });
  const link = element("a", { href: URL.createObjectURL(file), download: "looked_at.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}

let waiting = 0;
byId("table").addEventListener("scroll", () => { waiting ||= requestAnimationFrame(() => { waiting = 0; drawRows(); }); });
byId("find").addEventListener("input", arrange);
byId("clear").onclick = () => { level = range = null; byId("find").value = ""; pressOnly(null, false); arrange(); };
byId("export").onclick = exportMarks;
if (groups.length) byId("group").onchange = drawGroups;
addEventListener("resize", drawRows);
drawCounts();
drawPlots();
drawGroups();
drawHead();
arrange();
