// The film: a frame of the slice in grey, and over it what moves with the tissue: strain of the wall, grid, contours.
const state = { k: report.start, t: report.reference, contours: true, grid: false, wall: "off" };
const ramp = colourRamp(colours.strain).map(([r, g, b]) => `rgb(${r} ${g} ${b})`);
const film = element("film"), overlay = document.createElement("canvas");
const WALL_OPACITY = 0.45;

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// The points of slice k in every frame, and the strain of its wall, decoded once.
const decoded = new Map();
function points(k) {
  if (!decoded.has(k)) {
    const { moved, corners, strain, ...rest } = report.points[k];
    const maps = Object.entries(strain ?? {}).map(([name, text]) => [name, bytesOf(text)]);
    decoded.set(k, { ...rest, moved: new Uint16Array(bytesOf(moved).buffer), corners: new Uint32Array(bytesOf(corners).buffer), strain: Object.fromEntries(maps) });
  }
  return decoded.get(k);
}

// Where a point is in frame t, in pixels of the canvas.
function placing(p, t, scale) {
  const [low, high] = report.range, step = (high - low) / 65535, across = 2 * t * p.count, down = across + p.count;
  return (i) => [(low + step * p.moved[across + i]) * scale[0], (low + step * p.moved[down + i]) * scale[1]];
}

const [leastStrain, mostStrain] = report.strainRange;
const strainAt = (byte) => leastStrain + (byte / 255) * (mostStrain - leastStrain);
// A strain in percent as its colour: blue shortens, red lengthens.
function strainColour(percent, limit) {
  return ramp[Math.max(0, Math.min(255, Math.round(127.5 + (127.5 * percent) / limit)))];
}

// Through the points of the outlines of these labels.
function outlinePath(p, place, isDrawn) {
  const path = new Path2D();
  for (const [label, first, count] of p.outlines) {
    if (!isDrawn(label)) continue;
    path.moveTo(...place(first));
    for (let i = first + 1; i < first + count; i++) path.lineTo(...place(i));
    path.closePath();
  }
  return path;
}

// The voxels of the wall where they have moved to, within its contours. They are painted without gaps, and laid over
// the frame as a whole.
function paintWall(canvas, p, t, place, pen) {
  const bytes = p.strain[state.wall], limit = report.limits[state.wall], n = p.corners.length / 4;
  if (!bytes) return;
  const context = canvas.getContext("2d");
  overlay.width = canvas.width;
  overlay.height = canvas.height;
  const layer = overlay.getContext("2d");
  layer.clip(outlinePath(p, place, (label) => label === report.wall), "evenodd");
  layer.lineWidth = 2 * pen;
  for (let i = 0; i < n; i++) {
    layer.beginPath();
    for (let c = 0; c < 4; c++) layer.lineTo(...place(p.corners[4 * i + c]));
    layer.closePath();
    layer.fillStyle = layer.strokeStyle = strainColour(strainAt(bytes[t * n + i]), limit);
    layer.fill();
    layer.stroke();
  }
  context.globalAlpha = WALL_OPACITY;
  context.drawImage(overlay, 0, 0);
  context.globalAlpha = 1;
}

function strokeGrid(context, p, place, pen) {
  const [across, down] = p.grid;
  context.beginPath();
  for (let i = 0; i < across; i++) for (let j = 0; j < down; j++) context[j ? "lineTo" : "moveTo"](...place(i * down + j));
  for (let j = 0; j < down; j++) for (let i = 0; i < across; i++) context[i ? "lineTo" : "moveTo"](...place(i * down + j));
  context.strokeStyle = colours.grid;
  context.lineWidth = pen / 2;
  context.stroke();
}

function strokeContours(context, p, place, pen) {
  for (const { value, colour } of report.labels) {
    context.strokeStyle = colour;
    context.lineWidth = pen;
    context.stroke(outlinePath(p, place, (label) => label === value));
  }
}

function drawFilm() {
  drawFrame(film, state.t, 2 * fitCanvas(film));
}

function drawFrame(canvas, t, pen) {
  const context = canvas.getContext("2d"), { k } = state, p = points(k);
  const left = (t % columns) * width, top = Math.floor(t / columns) * height;
  const place = placing(p, t, [canvas.width / report.size[0], canvas.height / report.size[1]]);
  context.imageSmoothingQuality = "high";
  // The last block of a side may hang over it: as much of the sheet is drawn as there are voxels.
  const [w, h] = report.size.map((size) => size / report.block);
  context.drawImage(sheets[k], left, top, w, h, 0, 0, canvas.width, canvas.height);
  if (state.wall !== "off") paintWall(canvas, p, t, place, pen);
  if (state.grid) strokeGrid(context, p, place, pen);
  if (state.contours) strokeContours(context, p, place, pen);
}
