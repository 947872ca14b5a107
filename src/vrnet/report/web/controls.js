// The controls, the keys and the pointer.
let flickerTimer = null;

function showSlice(k) {
  const place = Math.max(0, Math.min(report.slices.length - 1, k));
  showExactSlice(report.slices[place] - 1, place);
}

// The next slice, or the one before: of a volume that is whole in the page, of all; else of those listed.
function stepSlice(step) {
  if (!volume) return showSlice(state.k + step);
  showExactSlice(Math.max(0, Math.min(report.depth - 1, state.z + step)));
}

// Slice z of the volume, counted from 0, and the place among the listed slices of the one nearest to it.
function showExactSlice(z, place = nearestPlace(z)) {
  [state.k, state.z] = [place, z];
  element("slice").value = volume ? z : place;
  element("slice").setAttribute("aria-valuetext", `slice ${z + 1} of ${report.depth}`);
  element("number").value = `slice ${z + 1} of ${report.depth}`;
  markSlice();
  drawAll();
}

const nearestPlace = (z) => {
  const distance = report.slices.map((number) => Math.abs(number - 1 - z));
  return distance.indexOf(Math.min(...distance));
};

// The column of the shown slice in the strip, and its row in the table.
function markSlice() {
  inputsNamed("strip").forEach((input) => (input.checked = Number(input.value) === state.k));
  for (const row of document.querySelectorAll(".strip tr")) {
    [...row.cells].forEach((cell, n) => cell.classList.toggle("shown", n === state.k + 1));
  }
  for (const button of document.querySelectorAll(".jump")) {
    button.closest("tr").classList.toggle("shown", Number(button.dataset.k) === state.k);
  }
}

function showFade(fade) {
  state.fade = fade;
  element("fade").value = Math.round(100 * fade);
  element("fade").setAttribute("aria-valuetext", `${Math.round(100 * fade)} % ${state.other}`);
  draw("main");
}

function showOther(other) {
  state.other = other;
  inputsNamed("other").forEach((input) => (input.checked = input.value === other));
  document.querySelectorAll("[data-other]").forEach((text) => (text.textContent = other));
  draw("main");
}

function showMode(mode) {
  state.mode = mode;
  inputsNamed("mode").forEach((input) => (input.checked = input.value === mode));
  element("fade").disabled = mode !== "fade";
  draw("main");
}

function showOption(name, on) {
  if (!element(name)) return;
  state[name] = element(name).checked = on;
  drawAll();
}

const swap = () => showFade(state.fade > 0.5 ? 0 : 1);
function stopFlicker() {
  clearInterval(flickerTimer);
  flickerTimer = null;
  element("flicker").setAttribute("aria-pressed", "false");
}

// From fixed to the other image and back, once per second; where a reader wants less motion, one change per press.
function flicker() {
  if (flickerTimer) return stopFlicker();
  showMode("fade");
  swap();
  if (lessMotion.matches) return;
  flickerTimer = setInterval(swap, 500);
  element("flicker").setAttribute("aria-pressed", "true");
}

element("slice")?.addEventListener("input", ({ target }) => (volume ? showExactSlice : showSlice)(Number(target.value)));
element("fade").addEventListener("input", (event) => {
  stopFlicker();
  showFade(event.target.value / 100);
});
element("flicker").addEventListener("click", flicker);
inputsNamed("other").forEach((input) => input.addEventListener("change", () => showOther(input.value)));
inputsNamed("mode").forEach((input) => input.addEventListener("change", () => {
  stopFlicker();
  showMode(input.value);
}));
for (const name of ["outlines", "zoom"]) {
  element(name)?.addEventListener("change", (event) => showOption(name, event.target.checked));
}

const KEYS = {
  ArrowLeft: () => element("slice") && stepSlice(-1),
  ArrowRight: () => element("slice") && stepSlice(1),
  " ": flicker,
  c: () => {
    stopFlicker();
    showMode(state.mode === "fade" ? "checkerboard" : "fade");
  },
  m: () => showOther(state.other === "warped" ? "moving" : "warped"),
  o: () => showOption("outlines", !state.outlines),
  z: () => showOption("zoom", !state.zoom),
};
listenToKeys(KEYS);

if (element("slice")) listenToWheel(stepSlice);

// The values of all arrays at a pixel, in words.
function readValues(x, y) {
  const s = slice(state.k), i = y * width + x, labels = ["no label", ...report.labels.map((label) => label.name)];
  const u = report.largest.map((_, axis) => toFixed(motion(s, axis, i) * report.spacing[axis], 1));
  const label = s.fixed_labels ? ` · ${labels[s.fixed_labels[i]]}` : "";
  const grey = ["fixed", "moving", "warped"].map((name) => `${name} ${intensity(name, s[name][i]).toPrecision(3)}`);
  return `${grey.join(" · ")} · u (${u.join(", ")}) ${report.unit} · det ${toFixed(determinant(s, i), 2)}${label}`;
}

// Mark the point under the pointer in every picture; in the grid, which lies in moving, the point that it moves to.
function showPoint(event) {
  const area = event.target.getBoundingClientRect(), [left, top, w, h] = view();
  const at = [
    left + ((event.clientX - area.left) / area.width) * w,
    top + ((event.clientY - area.top) / area.height) * h,
  ];
  const [x, y] = [width, height].map((size, axis) => Math.max(0, Math.min(size - 1, Math.floor(at[axis]))));
  const u = [0, 1].map((axis) => motion(slice(state.k), axis, y * width + x));
  element("readout").textContent = readValues(x, y);
  for (const [name, canvas] of canvases) {
    const [across, down] = name === "grid" ? [at[0] + u[0], at[1] + u[1]] : at;
    const cross = canvas.nextElementSibling;
    cross.hidden = false;
    cross.style.left = `${canvas.offsetLeft + ((across - left) / w) * canvas.offsetWidth}px`;
    cross.style.top = `${canvas.offsetTop + ((down - top) / h) * canvas.offsetHeight}px`;
  }
}

function hideCrosses() {
  document.querySelectorAll(".cross").forEach((cross) => (cross.hidden = true));
}

for (const canvas of canvases.values()) {
  for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, showPoint);
  canvas.addEventListener("pointerleave", hideCrosses);
}

// On paper there are no controls: what the picture shows is told below it.
function printWords() {
  const number = volume ? state.z + 1 : report.slices[state.k], percent = Math.round(100 * state.fade);
  const blend = percent === 0 ? "Fixed" : percent === 100 ? `The ${state.other} image` : `Fixed and ${state.other}, blended (${percent} % ${state.other})`;
  const shown = state.mode === "checkerboard" ? `Fixed and ${state.other}, in a checkerboard` : blend;
  element("printed-words").textContent = `${report.depth > 1 ? `Slice ${number} of ${report.depth}. ` : ""}${shown}.`;
}
addEventListener("beforeprint", printWords);

markSlice();
new ResizeObserver(drawAll).observe(document.querySelector("main"));
