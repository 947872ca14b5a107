"use strict";
const { values, groups, results } = data;
const columns = data.columns.filter(name => name !== "verdict" || values.verdict.some(Boolean));
const isSmall = innerWidth < 700;
/* A narrow screen has no room for the column of reasons: they are a second line of each row. */
const hasLine = isSmall && "reason" in values, height = hasLine ? 60 : 30;
const total = values.subject.length, margin = 10, printed = 2000;
let isPrinted = false;
const widths = { reason: "wide", notes: "wide", suspicion_by: "middling", outlier: "middling", verdict: "level", status: "level" };
const isNumber = Object.fromEntries(columns.map(name => [name, values[name].some(value => typeof value === "number")]));
const namesMeasure = ["suspicion_by", "outlier"];
const headingOf = name => data.headings[name] ?? name;
const byId = id => document.getElementById(id);
const key = `vrnet cohort ${location.pathname}`, marksKey = `${key} marks`;
let chosen = isSmall ? data.shown.slice(0, 3) : data.shown;
let marks = {}, order = [], sorted = { name: "suspicion", up: false }, level = null, range = null;
try {
  marks = JSON.parse(localStorage.getItem(marksKey)) || {};
  chosen = (JSON.parse(localStorage.getItem(`${key} columns`)) || chosen).filter(name => columns.includes(name));
} catch { /* storage may be off: marks and columns last as long as the page */ }

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/* What a subject counts as: its verdict, or why there is none. */
const NOT_DONE = "could not be done";
const levelOf = row => values.status[row] === "done" ? values.verdict[row] || "done" : values.status[row] === "failed" ? NOT_DONE : values.status[row];
const colourOf = { good: "good", look: "look", failed: "failed", [NOT_DONE]: "failed", "to do": "left", changed: "left", damaged: "left", done: "" };

const isMeasured = (value, row) => typeof value === "number" && values.status[row] === "done";

function drawCounts() {
  const counts = {};
  for (let row = 0; row < total; row++) counts[levelOf(row)] = (counts[levelOf(row)] || 0) + 1;
  for (const name of [NOT_DONE, "failed", "look", "good", "done", "to do", "changed", "damaged"].filter(name => counts[name])) {
    const words = name === "failed" ? `verdict ${data.words.failed}` : data.words[name] || name;
    const button = element("button", { type: "button", className: colourOf[name] }, `${counts[name].toLocaleString("en")} ${words}`);
    button.setAttribute("aria-pressed", "false");
    button.onclick = () => { level = level === name ? null : name; pressOnly(button, level !== null); arrange(); };
    byId("counts").append(button);
  }
}

function pressOnly(button, isPressed) {
  for (const other of byId("counts").children) other.setAttribute("aria-pressed", String(other === button && isPressed));
}

/* A value as it is read: numbers of a column have the same digits after the point, so that they stand below each other. */
function textOf(name, value) {
  if (value === null || value === undefined) return "";
  return typeof value === "number" && Number.isInteger(data.decimals[name]) ? value.toFixed(data.decimals[name]).replace("-", "−") : String(value);
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

/* The columns that a reader wants, in the order of the table. */
const shownColumns = () => columns.filter(name => chosen.includes(name));

function drawChoices() {
  byId("choices").replaceChildren(...columns.filter(name => name !== "subject").map(name => {
    const box = element("input", { type: "checkbox", checked: chosen.includes(name) });
    box.onchange = () => {
      chosen = box.checked ? [...chosen, name] : chosen.filter(other => other !== name);
      try { localStorage.setItem(`${key} columns`, JSON.stringify(chosen)); } catch { /* as above */ }
      drawHead();
      drawRows();
    };
    return element("label", { title: name }, box, headingOf(name));
  }));
}

function sortBy(name) {
  sorted = { name, up: sorted.name === name ? !sorted.up : !isNumber[name] };
  drawHead();
  arrange();
}

const classOf = name => `cell ${isNumber[name] ? "number" : ""} ${widths[name] ?? ""}`;

function drawHead() {
  const cells = shownColumns().map(name => {
    const cell = element("div", { className: classOf(name), title: `${name}: click to sort`, role: "columnheader", tabIndex: 0 }, headingOf(name));
    if (sorted.name === name) {
      cell.classList.add("sorted", ...(sorted.up ? ["up"] : []));
      cell.ariaSort = sorted.up ? "ascending" : "descending";
    }
    cell.onclick = () => sortBy(name);
    cell.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sortBy(name); } };
    return cell;
  });
  byId("head").replaceChildren(element("div", { className: "cell marks", role: "columnheader" }, "Looked at"), ...cells);
  byId("chosen").textContent = `${cells.length} of ${columns.length}`;
}

/* Only the rows in sight are in the page, however many there are. */
function drawRows() {
  const table = byId("table"), first = isPrinted ? 0 : Math.max(0, Math.floor(table.scrollTop / height) - margin);
  const last = Math.min(order.length, isPrinted ? printed : Math.ceil((table.scrollTop + table.clientHeight) / height) + margin);
  tellMore(table, byId("more"));
  byId("body").replaceChildren(...order.slice(first, last).map((row, k) => drawRow(row, first + k)));
}

/* Show the note that what is wider than its frame goes on to the right. */
function tellMore(frame, note) {
  note.hidden = frame.scrollWidth - frame.clientWidth - frame.scrollLeft < 3;
}

function drawRow(row, place) {
  const made = element("div", { className: "row", role: "row" }, marksOf(row), ...shownColumns().map(name => cellOf(name, row)));
  if (hasLine) made.append(lineOf(row));
  made.style.top = `${place * height}px`;
  made.onmouseenter = () => preview(row);
  made.addEventListener("focusin", () => preview(row));
  made.onmouseleave = () => { shownPicture = ""; byId("preview").hidden = true; };
  return made;
}

/* Why a subject is not good; of one that is, what it is farthest out in. */
function lineOf(row) {
  const measure = values.suspicion_by?.[row];
  const words = values.reason[row] || (measure ? `${headingOf("suspicion_by")}: ${headingOf(measure)}` : "");
  return element("div", { className: `line ${values.reason[row] ? "" : "quiet"}`, role: "cell", title: words }, words);
}

const fileOf = (row, form) => `${results}/${encodeURIComponent(values.subject[row])}/${encodeURIComponent(form.replaceAll("{subject}", values.subject[row]))}`;

function cellOf(name, row) {
  const value = values[name][row], text = textOf(name, value), cell = element("div", { className: classOf(name), role: "cell" });
  cell.title = value === null || value === undefined ? "" : String(value);
  if (name === "subject" && values.status[row] === "done") cell.append(element("a", { href: fileOf(row, data.has_page[row] ? data.page : data.numbers) }, text));
  else if (name === "subject" && values.status[row] === "failed") cell.append(element("a", { href: `failures/${encodeURIComponent(value)}.txt` }, text));
  else if (name === "verdict") cell.append(levelOf(row) === NOT_DONE ? "not done" : data.words[levelOf(row)] || levelOf(row));
  else cell.append(namesMeasure.includes(name) ? headingOf(text) : text);
  if (name === "verdict") cell.classList.add(colourOf[levelOf(row)] || "none");
  if (name === "status") cell.classList.add(colourOf[value] || "none");
  return cell;
}

/* A mark is of the result that was looked at: {subject: [mark, version]}. One of an earlier result does not count. */
function markOf(row) {
  const [mark, version] = marks[values.subject[row]] ?? [];
  return version === data.versions[row] ? mark : undefined;
}

function marksOf(row) {
  const name = values.subject[row], cell = element("div", { className: "cell marks", role: "cell" });
  for (const [mark, sign] of [["good", "✓"], ["bad", "✗"]]) {
    const button = element("button", { type: "button", title: `looked at: ${mark}` }, sign);
    button.setAttribute("aria-pressed", String(markOf(row) === mark));
    button.onclick = () => {
      if (markOf(row) === mark) delete marks[name]; else marks[name] = [mark, data.versions[row]];
      try { localStorage.setItem(marksKey, JSON.stringify(marks)); } catch { /* as above */ }
      drawRows();
    };
    cell.append(button);
  }
  return cell;
}

/* The whole reason of the subject under the pointer, or in focus: a cell has room for its beginning. */
function tell(row) {
  const reason = values.reason?.[row];
  byId("told").replaceChildren(element("b", {}, values.subject[row]), ...(reason ? [element("p", {}, String(reason))] : []));
  byId("preview").hidden = !reason;
  byId("preview").classList.add("words");
}

/* The thumbnail holds fixed, moving and warped side by side: before and after flicker between the first and another. */
function preview(row) {
  shownPicture = "";
  tell(row);
  if (values.status[row] !== "done") return;
  const picture = new Image(), wanted = fileOf(row, data.picture);
  shownPicture = wanted;
  picture.onload = () => {
    if (shownPicture !== wanted) return;
    for (const panel of byId("preview").querySelectorAll("figure div")) {
      Object.assign(panel.style, { width: `${2 * picture.naturalWidth / 3}px`, height: `${2 * picture.naturalHeight}px`, backgroundImage: `url("${wanted}")` });
    }
    byId("preview").hidden = false;
    byId("preview").classList.remove("words");
  };
  picture.src = wanted;
}

let shownPicture = "", isFixed = false;
setInterval(() => {
  isFixed = !isFixed;
  byId("preview").querySelectorAll("figure div").forEach((panel, k) => { panel.style.backgroundPosition = isFixed ? "0% 0" : `${50 * (k + 1)}% 0`; });
}, 450);

function exportMarks() {
  const cell = text => /^[=+\-@\t\r]/.test(text) ? `"'${text.replaceAll('"', '""')}"` : `"${text.replaceAll('"', '""')}"`;
  const lines = values.subject.map((name, row) => [name, markOf(row)]).filter(([, mark]) => mark).map(([name, mark]) => `${cell(name)},${mark}`);
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
addEventListener("resize", drawRows);
/* On paper nothing scrolls: all rows are there, unless they are very many. */
for (const [when, now] of [["beforeprint", true], ["afterprint", false]]) addEventListener(when, () => { isPrinted = now; drawRows(); });
document.documentElement.style.setProperty("--row", `${height}px`);
drawCounts();
drawChoices();
drawHead();
arrange();
