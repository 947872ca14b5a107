// What each picture shows, as a raster and lines over it, of slice s and the state of the controls.
const state = { k: report.start, mode: "fade", other: "warped", fade: 0.5, outlines: true, zoom: false };
const SQUARES = 8;

function comparison(s) {
  const a = s.fixed, b = s[state.other], t = state.fade, side = Math.ceil(Math.max(width, height) / SQUARES);
  if (state.mode === "fade") return raster((i) => grey[Math.round(a[i] + (b[i] - a[i]) * t)]);
  const isOdd = (i) => (Math.floor((i % width) / side) + Math.floor(i / width / side)) % 2;
  return raster((i) => grey[(isOdd(i) ? b : a)[i]]);
}

function labelLines(s, name, dash = []) {
  if (!s[name]) return [];
  return outlines(s, name).map(([label, path]) => ({ path, colour: report.labels[label - 1].colour, dash }));
}

function grid(s) {
  const [all, folded] = gridLines(s);
  return [{ path: all, colour: colours.grid, thin: true }, { path: folded, colour: colours.fold }];
}

const PANELS = {
  main: {
    raster: comparison,
    lines: (s) =>
      state.outlines ? [...labelLines(s, "fixed_labels"), ...labelLines(s, `${state.other}_labels`, [5, 4])] : [],
  },
  warped: { raster: (s) => raster((i) => grey[s.warped[i]]) },
  "labels-before": { raster: (s) => tinted(s.moving, s.moving_labels), lines: (s) => labelLines(s, "fixed_labels") },
  "labels-after": { raster: (s) => tinted(s.warped, s.warped_labels), lines: (s) => labelLines(s, "fixed_labels") },
  motion: { raster: motionRaster },
  grid: { raster: (s) => raster((i) => grey[s.moving[i] >> 1]), lines: grid },
  jacobian: { raster: jacobian },
  "difference-before": { raster: (s) => difference(s.moving, s.fixed) },
  "difference-after": { raster: (s) => difference(s.warped, s.fixed) },
};

const figures = [...document.querySelectorAll("[data-panel]")];
const canvases = new Map(figures.map((figure) => [figure.dataset.panel, figure.querySelector("canvas")]));

// The part of the slice in view: x, y, width and height in pixels.
const view = () => (state.zoom && report.box) || [0, 0, width, height];

function draw(name) {
  const canvas = canvases.get(name), context = canvas.getContext("2d"), s = slice(state.k), [x, y, w, h] = view();
  const density = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * density));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * density));
  const scale = [canvas.width / w, canvas.height / h];
  // Much enlarged, pixels are shown as they are; near their own size that would make some wider than others.
  context.imageSmoothingEnabled = Math.min(...scale) < 2.5;
  context.imageSmoothingQuality = "high";
  context.drawImage(PANELS[name].raster(s), x, y, w, h, 0, 0, canvas.width, canvas.height);
  const place = new DOMMatrix([scale[0], 0, 0, scale[1], -x * scale[0], -y * scale[1]]);
  const pen = density * (canvas.clientWidth > 400 ? 2 : 1.5);
  for (const line of PANELS[name].lines?.(s) ?? []) stroke(context, line, place, pen);
}

// The path is placed first and then drawn, so that a line is equally wide along both axes.
function stroke(context, { path, colour, dash = [], thin = false }, place, pen) {
  const placed = new Path2D();
  placed.addPath(path, place);
  context.strokeStyle = colour;
  context.lineWidth = thin ? pen / 2 : pen;
  context.setLineDash(dash.map((length) => length * pen / 2));
  context.stroke(placed);
}

function drawAll() {
  const [, , w, h] = view();
  document.body.style.setProperty("--aspect", (w * report.spacing[0]) / (h * report.spacing[1]));
  for (const name of canvases.keys()) draw(name);
  document.getElementById("folds").value = slice(state.k).folded.reduce((sum, value) => sum + value, 0);
}
