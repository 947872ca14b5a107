// What the script of every page with pictures begins with: its data, its sheets, colours, keys and the wheel.
const element = (id) => document.getElementById(id);
const inputsNamed = (name) => [...document.querySelectorAll(`input[name="${name}"]`)];
const lessMotion = matchMedia("(prefers-reduced-motion: reduce)");
const readJson = (id) => JSON.parse(element(id).textContent);
const toFixed = (value, digits) => value.toFixed(digits).replace("-", "−");
const report = readJson("data");
const colours = readJson("colours");
const { width, height, columns } = report.tiles;

function loadSheet([name, address]) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve([name, image]);
    image.onerror = () => reject(new Error(`the sheet ${name} cannot be shown`));
    image.src = address;
  });
}
const sheets = Object.fromEntries(await Promise.all(Object.entries(report.sheets).map(loadSheet)));

// 256 colours [r, g, b] between equally spaced stops.
const parseHex = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const mix = (a, b, t) => a.map((value, c) => Math.round(value + (b[c] - value) * t));
function colourRamp(stops) {
  const colour = stops.map(parseHex);
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1), n = Math.min(Math.floor(at), stops.length - 2);
    return mix(colour[n], colour[n + 1], at - n);
  });
}

// A canvas gets as many pixels as the screen has under it; the answer is how many there are to a unit of the page.
function fitCanvas(canvas) {
  const density = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * density));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * density));
  return density;
}

// {key: action}; what a control in focus does with a key of its own stays as it is.
function listenToKeys(keys) {
  document.addEventListener("keydown", (event) => {
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    const isNative = event.key.length > 1 || event.key === " ";
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    const taken = event.key === " " ? "input:not([type=range]), button, summary" : "input, button, summary";
    if (isNative && event.target.closest(`${taken}, select, [role=button]`)) return;
    event.preventDefault();
    action();
  });
}

// What was pressed with a pointer keeps no focus: the keys of the page go on.
let isPointing = false;
document.addEventListener("pointerdown", () => (isPointing = true), true);
document.addEventListener("keydown", () => (isPointing = false), true);
document.addEventListener("click", () => {
  const pressed = document.activeElement;
  if (isPointing && pressed.matches("button, summary, [type=radio], [type=checkbox]")) pressed.blur();
});

// Turns of the wheel belong to what lay under the pointer at the first one: scrolling the page over a picture goes on.
function listenToWheel(turn) {
  let lastTurn = -Infinity, isOverPicture = false, turned = 0;
  document.addEventListener("wheel", (event) => {
    if (event.timeStamp - lastTurn > 300) [isOverPicture, turned] = [event.target.tagName === "CANVAS", 0];
    lastTurn = event.timeStamp;
    if (!isOverPicture || event.ctrlKey) return;
    event.preventDefault();
    turned += event.deltaY * (event.deltaMode ? 40 : 1);
    if (Math.abs(turned) < 40) return;
    turn(Math.sign(turned));
    turned = 0;
  }, { passive: false });
}

// How high a picture can be between the header and the dock, before the page is scrolled.
function pictureRoom() {
  const viewer = document.querySelector(".viewer"), style = getComputedStyle(viewer);
  const top = viewer.getBoundingClientRect().top + scrollY + parseFloat(style.paddingTop) + parseFloat(style.borderTopWidth);
  return Math.floor(innerHeight - top - document.querySelector(".dock").offsetHeight - PICTURE_MARGIN);
}
const PICTURE_MARGIN = 8;
const tellRoom = () => document.body.style.setProperty("--room", `${pictureRoom()}px`);
new ResizeObserver(tellRoom).observe(document.querySelector("header"));
addEventListener("resize", tellRoom);
tellRoom();

// What is wider than its place fades at the right edge, and says that there is more, until it is scrolled to its end.
function watchScroll(box) {
  const hint = document.createElement("p");
  Object.assign(hint, { className: "swipe", ariaHidden: "true", textContent: "more to the right →" });
  box.after(hint);
  const look = () => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 20);
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
}
document.querySelectorAll(".scroll").forEach(watchScroll);
