// Playing, stepping and choosing what is drawn.
let started = null, playedFrom = 0;

// People count frames from 1, as slices; files and programs from 0.
const frameText = () => `frame ${state.t + 1} of ${report.frames}`;

function showFrame(t) {
  state.t = (t + report.frames) % report.frames;
  element("frame").value = state.t;
  element("frame").setAttribute("aria-valuetext", frameText());
  const time = report.times ? ` · ${toFixed(report.times[state.t], 0)} ms` : "";
  element("when").value = `${frameText()}${time}`;
  drawFilm();
  charts.forEach((chart) => chart.follow());
  followSegments();
}

function showSlice(k) {
  state.k = Math.max(0, Math.min(report.slices.length - 1, k));
  if (element("slice")) {
    element("slice").value = state.k;
    element("number").value = `slice ${report.slices[state.k]} of ${report.depth}`;
  }
  if (element("unlabelled")) element("unlabelled").hidden = !isUnlabelled();
  showWall(state.wall);
}

const isUnlabelled = () => report.points[state.k].outlines.length === 0;

// One choice for all: the wall, the curves and the segments show strain in the same direction.
function chooseWall(wall) {
  if (wall !== "off" && strainOf().direction !== wall) {
    element("measure").value = `green_${wall}`;
    showMeasure();
  }
  showWall(wall);
}

function showWall(wall) {
  state.wall = report.strain ? wall : "off";
  inputsNamed("wall").forEach((input) => (input.checked = input.value === wall));
  if (report.strain) {
    const limit = report.limits[wall];
    element("ramp").hidden = element("no-strain").hidden = !limit || report.points[state.k].strain === null;
    element("low").textContent = `−${limit} %`;
    element("high").textContent = `+${limit} %`;
    element("absent").hidden = !limit || report.points[state.k].strain !== null || isUnlabelled();
  }
  drawFilm();
}

function showOption(name, on) {
  if (!element(name)) return;
  state[name] = element(name).checked = on;
  drawFilm();
}

function stop() {
  started = null;
  element("play").textContent = "Play";
  element("play").setAttribute("aria-pressed", "false");
}

// Frames follow the clock, so that a slow machine leaves some out instead of slowing the heart.
function tick(now) {
  if (started === null) return;
  const passed = ((now - started) * Number(element("speed").value)) / report.cycle;
  const t = Math.floor(playedFrom + passed * report.frames) % report.frames;
  if (t !== state.t) showFrame(t);
  requestAnimationFrame(tick);
}

function play() {
  if (started !== null) return stop();
  [started, playedFrom] = [performance.now(), state.t];
  element("play").textContent = "Stop";
  element("play").setAttribute("aria-pressed", "true");
  requestAnimationFrame(tick);
}

function step(n) {
  stop();
  showFrame(state.t + n);
}

// Another speed goes on from the frame that is shown.
function restart() {
  showPace();
  if (started !== null) [started, playedFrom] = [performance.now(), state.t];
}

// How long a cycle takes at this speed.
function showPace() {
  const speed = Number(element("speed").value), real = report.times && speed === 1 ? "real time, " : "";
  const seconds = String(+(report.cycle / 1000 / speed).toPrecision(2));
  element("pace").textContent = `${real}${seconds} s per cycle${report.times ? "" : ", assumed"}`;
}

function changeSpeed() {
  const speed = element("speed");
  speed.selectedIndex = (speed.selectedIndex + 1) % speed.options.length;
  restart();
}

function showMeasure() {
  element("definition").textContent = strainOf().definition;
  charts[0].draw();
  followSegments();
  if (state.wall !== "off") showWall(strainOf().direction);
}

function showKeys(on) {
  element("keys").hidden = !on;
  element("help").setAttribute("aria-expanded", String(on));
}

element("play").addEventListener("click", play);
element("help").addEventListener("click", () => showKeys(element("keys").hidden));
document.addEventListener("pointerdown", (event) => event.target.closest("#keys, #help") || showKeys(false));
document.addEventListener("keydown", (event) => event.key === "Escape" && showKeys(false));
element("back").addEventListener("click", () => step(-1));
element("on").addEventListener("click", () => step(1));
element("speed").addEventListener("change", restart);
element("measure")?.addEventListener("change", showMeasure);
element("slice")?.addEventListener("input", (event) => showSlice(Number(event.target.value)));
element("frame").addEventListener("input", (event) => {
  stop();
  showFrame(Number(event.target.value));
});
element("look-at")?.addEventListener("click", (event) => {
  const { slice, frame } = event.target.dataset;
  stop();
  if (slice) showSlice(Number(slice));
  showFrame(Number(frame));
  element("film").scrollIntoView({ block: "nearest" });
});
for (const name of ["contours", "grid"]) element(name)?.addEventListener("change", (event) => showOption(name, event.target.checked));
inputsNamed("wall").forEach((input) => input.addEventListener("change", () => chooseWall(input.value)));
inputsNamed("when").forEach((input) => input.addEventListener("change", followSegments));

const WALLS = ["off", "circumferential", "radial"];
listenToKeys({
  ArrowLeft: () => step(-1),
  ArrowRight: () => step(1),
  j: () => showSlice(state.k + 1),
  k: () => showSlice(state.k - 1),
  " ": play,
  v: changeSpeed,
  c: () => showOption("contours", !state.contours),
  g: () => showOption("grid", !state.grid),
  s: () => report.strain && chooseWall(WALLS[(WALLS.indexOf(state.wall) + 1) % WALLS.length]),
  "?": () => showKeys(element("keys").hidden),
});
if (element("slice")) listenToWheel((turn) => showSlice(state.k + turn));

showSlice(state.k);
if (report.strain) showMeasure();
showFrame(state.t);
showPace();
// Both may get another size while the page as a whole keeps its own.
const resized = new ResizeObserver(() => {
  drawFilm();
  charts.forEach((chart) => chart.draw());
});
[film, ...charts.map((chart) => chart.svg)].forEach((drawn) => resized.observe(drawn));
if (!lessMotion.matches) play();
