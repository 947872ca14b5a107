// The strip of slices, and tables that sort.
const showOnly = (k) => element("slice") && showSlice(k);
inputsNamed("strip").forEach((input) => input.addEventListener("change", () => showOnly(Number(input.value))));
document.querySelector(".strip")?.addEventListener("click", (event) => {
  const cell = event.target.closest("td");
  if (cell) showOnly(cell.cellIndex - 1);
});

// The worst slice is looked at in the pictures: they are brought into view.
function jumpTo(k) {
  showOnly(k);
  const viewer = document.querySelector(".viewer");
  viewer.scrollIntoView({ behavior: lessMotion.matches ? "auto" : "smooth", block: "start" });
}
for (const button of document.querySelectorAll("#worst, .jump")) {
  button.addEventListener("click", () => jumpTo(Number(button.dataset.k)));
}

// What a cell is sorted by: its value, or its text as a number; null for a dash, which comes last either way.
function sortKey(row, column) {
  const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.trim();
  if (text === "" || text === "–") return null;
  return Number.isNaN(Number(text)) ? text : Number(text);
}

function compareKeys(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

// Rows with equal values stay in their order, whichever way the others go.
function sortTable(table, heading) {
  const isUp = heading.getAttribute("aria-sort") !== "ascending", sign = isUp ? 1 : -1, column = heading.cellIndex;
  for (const other of heading.parentElement.cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", isUp ? "ascending" : "descending");
  const body = table.tBodies[0], rows = [...body.rows].map((row) => [sortKey(row, column), row]);
  rows.sort(([a], [b]) => (a === null || b === null ? compareKeys(a, b) : sign * compareKeys(a, b)));
  body.append(...rows.map(([, row]) => row));
}
for (const button of document.querySelectorAll(".sortable .sort")) {
  button.addEventListener("click", () => sortTable(button.closest("table"), button.closest("th")));
}

// On paper nothing can be opened.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => (details.open = true)));
