// From arrays to colours and lines. A colour is one 32-bit number, in the byte order of a canvas.
const packColour = (r, g, b) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const interpolate = (stops) => Uint32Array.from(colourRamp(stops), (colour) => packColour(...colour));
const grey = Uint32Array.from({ length: 256 }, (_, i) => packColour(i, i, i));
const differenceColours = interpolate(colours.difference), jacobianColours = interpolate(colours.jacobian);
const foldColour = packColour(...parseHex(colours.fold));
const labelColours = report.labels.map((label) => parseHex(label.colour));

// A canvas whose pixel i has colour(i).
function newRaster(colour) {
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colour(i);
  const canvas = newCanvas();
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Absolute difference; half of the grey window and more is brightest.
const differenceRaster = (a, b) => newRaster((i) => differenceColours[Math.min(255, 2 * Math.abs(a[i] - b[i]))]);

// Determinants over the range of the colour map; folds have a colour of their own.
function jacobianRaster(s) {
  const [low, high] = colours.range;
  const shade = (det) => jacobianColours[Math.max(0, Math.min(255, Math.round((255 * (det - low)) / (high - low))))];
  return newRaster((i) => (s.folded[i] ? foldColour : shade(determinant(s, i))));
}

// Direction is hue, right red and then clockwise; length up to the scale is saturation.
function motionColour(across, down) {
  const hue = (Math.atan2(down, across) / (2 * Math.PI)) * 6 + 6;
  const saturation = Math.min(1, Math.hypot(across, down) / report.scale);
  const channel = (n) => {
    const k = (n + hue) % 6;
    return Math.round(255 * (1 - saturation * Math.max(0, Math.min(k, 4 - k, 1))));
  };
  return packColour(channel(5), channel(3), channel(1));
}
const motionRaster = (s) =>
  newRaster((i) => motionColour(motion(s, 0, i) * report.spacing[0], motion(s, 1, i) * report.spacing[1]));

// An image in grey, half covered by the colours of its labels.
function tint(image, labels) {
  return newRaster((i) => {
    const shade = [image[i], image[i], image[i]];
    return packColour(...(labels[i] ? mix(shade, labelColours[labels[i] - 1], 0.5) : shade));
  });
}

// Marching squares: the sides (left, top, right, bottom) by which an outline enters and leaves a cell of four pixels,
// by which of these (1 2 / 8 4) have the label. The label is always on the same side, so that ends meet beginnings.
const SIDES = { L: [0, 1], T: [1, 0], R: [2, 1], B: [1, 2] };
const CROSSINGS = ["", "LT", "TR", "LR", "RB", "LTRB", "TB", "LB", "BL", "BT", "TRBL", "BR", "RL", "RT", "TL", ""];

// {label: {point: next point}} of all outlines, on a grid of half pixels. Outside the picture there is no label.
function linkOutlines(labels, w = width, h = height) {
  const at = (x, y) => (x < 0 || y < 0 || x >= w || y >= h ? 0 : labels[y * w + x]);
  const all = new Map(), stride = 2 * w + 3;
  const point = (x, y, side) => (2 * y + 2 + SIDES[side][1]) * stride + 2 * x + 2 + SIDES[side][0];
  for (let y = -1; y < h; y++) {
    for (let x = -1; x < w; x++) {
      const corners = [at(x, y), at(x + 1, y), at(x + 1, y + 1), at(x, y + 1)];
      if (corners.every((label) => label === corners[0])) continue;
      for (const label of new Set(corners)) {
        if (!label) continue;
        if (!all.has(label)) all.set(label, new Map());
        const sides = CROSSINGS[corners.reduce((bits, other, n) => bits | ((other === label) << n), 0)];
        for (let n = 0; n < sides.length; n += 2) all.get(label).set(point(x, y, sides[n]), point(x, y, sides[n + 1]));
      }
    }
  }
  return all;
}

// The closed outlines of one label, in pixels, from the links between their points; it empties `next`.
function tracePath(next, w = width) {
  const path = new Path2D(), stride = 2 * w + 3;
  for (const first of next.keys()) {
    for (let key = first, pen = "moveTo"; next.has(key); pen = "lineTo") {
      path[pen]((key % stride) / 2 - 0.5, Math.floor(key / stride) / 2 - 0.5);
      const following = next.get(key);
      next.delete(key);
      key = following;
    }
    path.closePath();
  }
  return path;
}

// [label, path] for every label of a map.
function labelOutlines(s, name) {
  if (!s.paths.has(name)) s.paths.set(name, [...linkOutlines(s[name])].map(([label, next]) => [label, tracePath(next)]));
  return s.paths.get(name);
}

// Lines of the fixed grid as they lie in moving, x + u(x): all of them, and the folded parts.
function gridLines(s) {
  const step = Math.max(2, Math.round(Math.max(width, height) / 40));
  const all = new Path2D(), folded = new Path2D();
  const place = (i) => [(i % width) + 0.5 + motion(s, 0, i), Math.floor(i / width) + 0.5 + motion(s, 1, i)];
  const line = (first, n, stride) => {
    all.moveTo(...place(first));
    for (let i = first, m = 1; m < n; m++, i += stride) {
      all.lineTo(...place(i + stride));
      if (!s.folded[i]) continue;
      folded.moveTo(...place(i));
      folded.lineTo(...place(i + stride));
    }
  };
  for (let x = Math.floor(step / 2); x < width; x += step) line(x, height, width);
  for (let y = Math.floor(step / 2); y < height; y += step) line(y * width, width, 1);
  return [all, folded];
}
