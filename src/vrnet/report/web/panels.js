// What each picture shows of slice s, by the state of the controls: a raster, and lines over it.
const state = { k: report.start, z: report.slices[report.start] - 1, mode: document.querySelector("[name=mode]:checked").value, other: "warped", fade: 0.5, outlines: element("outlines")?.checked ?? false, zoom: false };
const CHECKERBOARD_SQUARES = 8;

// Fixed and the other image, blended or as a checkerboard.
function comparisonRaster(s) {
  const a = s.fixed, b = s[state.other], t = state.fade, side = Math.ceil(Math.max(width, height) / CHECKERBOARD_SQUARES);
  if (state.mode === "fade") return newRaster((i) => grey[Math.round(a[i] + (b[i] - a[i]) * t)]);
  const isOdd = (i) => (Math.floor((i % width) / side) + Math.floor(i / width / side)) % 2;
  return newRaster((i) => grey[(isOdd(i) ? b : a)[i]]);
}

function labelLines(s, name, dash = []) {
  if (!s[name]) return [];
  return labelOutlines(s, name).map(([label, path]) => ({ path, colour: report.labels[label - 1].colour, dash }));
}

const maskLines = (s) => (s.mask ? labelOutlines(s, "mask").map(([, path]) => ({ path, colour: colours.mask, dash: [2, 3] })) : []);

function gridPaths(s) {
  const [all, folded] = gridLines(s);
  return [{ path: all, colour: colours.grid, thin: true }, { path: folded, colour: colours.fold }];
}

const PANELS = {
  main: {
    raster: comparisonRaster,
    lines: (s) => [
      ...(state.outlines ? [...labelLines(s, "fixed_labels"), ...labelLines(s, `${state.other}_labels`, [5, 4])] : []),
      ...maskLines(s),
    ],
  },
  warped: { raster: (s) => newRaster((i) => grey[s.warped[i]]), lines: maskLines },
  "labels-before": { raster: (s) => tint(s.moving, s.moving_labels), lines: (s) => labelLines(s, "fixed_labels") },
  "labels-after": { raster: (s) => tint(s.warped, s.warped_labels), lines: (s) => labelLines(s, "fixed_labels") },
  motion: { raster: motionRaster, lines: maskLines },
  grid: { raster: (s) => newRaster((i) => grey[s.moving[i] >> 1]), lines: gridPaths },
  jacobian: { raster: jacobianRaster },
  "difference-before": { raster: (s) => differenceRaster(s.moving, s.fixed), lines: maskLines },
  "difference-after": { raster: (s) => differenceRaster(s.warped, s.fixed), lines: maskLines },
};

const figures = [...document.querySelectorAll("[data-panel]")];
const canvases = new Map(figures.map((figure) => [figure.dataset.panel, figure.querySelector("canvas")]));

// The part of the slice in view: x, y, width and height in pixels.
const view = () => (state.zoom && report.box) || [0, 0, width, height];

function draw(name) {
  const canvas = canvases.get(name), context = canvas.getContext("2d"), s = slice(state.k), [x, y, w, h] = view();
  const density = fitCanvas(canvas), scale = [canvas.width / w, canvas.height / h];
  // Enlarged pixels keep their sharp edges; near their own size, some would then be wider than others.
  context.imageSmoothingEnabled = Math.min(...scale) < 2.5;
  context.imageSmoothingQuality = "high";
  context.drawImage(PANELS[name].raster(s), x, y, w, h, 0, 0, canvas.width, canvas.height);
  const place = new DOMMatrix([scale[0], 0, 0, scale[1], -x * scale[0], -y * scale[1]]);
  const pen = density * (canvas.clientWidth > 400 ? 2 : 1.5);
  for (const line of PANELS[name].lines?.(s) ?? []) stroke(context, line, place, pen);
  if (name === "main") planes?.update();
}

// The three planes of a volume, once they are open: they follow the comparison.
let planes = null;

// The path is scaled before it is drawn, not the pen: so a line is equally wide along both axes.
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
