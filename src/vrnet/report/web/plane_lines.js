// What is drawn over the planes: outlines of structures, arrows and the grid of the motion, and what lies on each side.
const ARROW_PIXELS = 14, GRID_LINES = 40;

// A map in the plane across an axis of the volume: its values, and how many there are along its two axes.
function cutMap(map, normal, at) {
  const [w, h] = volume.shape, strides = [1, w, w * h];
  const [a, b] = [0, 1, 2].filter((axis) => axis !== normal), [m, n] = [volume.shape[a], volume.shape[b]];
  const cut = new Uint8Array(m * n), first = at * strides[normal];
  for (let j = 0, i = 0; j < n; j++) for (let k = 0; k < m; k++) cut[i++] = map[first + k * strides[a] + j * strides[b]];
  return { cut, m, n };
}

const hasManyLabels = Boolean(element("outlines")) && !element("outlines").defaultChecked;
const labelAt = ([x, y, z]) => voxels.fixed_labels?.[x + volume.shape[0] * (y + volume.shape[1] * z)];

// The places on the canvas of voxels (p along axis a, q along b) of a plane, for paths.
const planeMatrix = ({ columns, offset }, [a, b]) => new DOMMatrix([...columns[a], ...columns[b], ...offset]);

// Of all labels; where there are so many that they would cover the picture, only of the one under the cross.
function outlinePlane(plane, voxel, name) {
  const axes = [0, 1, 2].filter((axis) => axis !== plane.normal), { cut, m, n } = cutMap(voxels[name], plane.normal, voxel[plane.normal]);
  const place = planeMatrix(plane, axes).translate(-0.5, -0.5);
  const here = state.outlines ? null : labelAt(voxel);
  return [...linkOutlines(cut, m, n)].filter(([label]) => here === null || label === here).map(([label, next]) => ({
    path: tracePath(next, m), place, colour: report.labels[label - 1].colour,
  }));
}

function maskPlane(plane, voxel) {
  const axes = [0, 1, 2].filter((axis) => axis !== plane.normal), { cut, m, n } = cutMap(voxels.mask, plane.normal, voxel[plane.normal]);
  const place = planeMatrix(plane, axes).translate(-0.5, -0.5);
  return [...linkOutlines(cut, m, n)].map(([, next]) => ({ path: tracePath(next, m), place, colour: colours.mask, dash: [4, 4] }));
}

// The displacement within a plane, at p along axis a and q along b.
function motionWithin(plane, voxel, [a, b]) {
  return (p, q) => {
    const at = [...voxel];
    [at[a], at[b]] = [p, q];
    const u = displacement(...at);
    return [u[a], u[b]];
  };
}

// Lines of the grid of fixed as they lie in moving.
function planeGrid(plane, voxel) {
  const axes = [0, 1, 2].filter((axis) => axis !== plane.normal), motion = motionWithin(plane, voxel, axes), path = new Path2D();
  const [m, n] = axes.map((axis) => volume.shape[axis]), step = Math.max(2, Math.round(Math.max(m, n) / GRID_LINES));
  const line = (count, point) => {
    for (let i = 0; i < count; i++) {
      const [p, q] = point(i), u = motion(p, q);
      path[i ? "lineTo" : "moveTo"](p + u[0], q + u[1]);
    }
  };
  for (let p = Math.floor(step / 2); p < m; p += step) line(n, (q) => [p, q]);
  for (let q = Math.floor(step / 2); q < n; q += step) line(m, (p) => [p, q]);
  return { path, place: planeMatrix(plane, axes), colour: colours.grid, thin: true };
}

// Arrows from voxels of fixed to where they are in moving, on the canvas.
function planeArrows(plane, voxel, density) {
  const axes = [0, 1, 2].filter((axis) => axis !== plane.normal), motion = motionWithin(plane, voxel, axes), path = new Path2D();
  const place = planeMatrix(plane, axes), size = axes.map((axis) => Math.hypot(...plane.columns[axis]));
  const steps = size.map((pixels) => Math.max(1, Math.round((ARROW_PIXELS * density) / pixels)));
  const to = (p, q) => place.transformPoint(new DOMPoint(p, q));
  for (let q = 0; q < volume.shape[axes[1]]; q += steps[1]) {
    for (let p = 0; p < volume.shape[axes[0]]; p += steps[0]) {
      const u = motion(p, q), from = to(p, q), end = to(p + u[0], q + u[1]);
      const [dx, dy] = [end.x - from.x, end.y - from.y], length = Math.hypot(dx, dy);
      if (length < 2 * density) continue;
      const head = Math.min(5 * density, length / 2), angle = Math.atan2(dy, dx);
      path.moveTo(from.x, from.y);
      path.lineTo(end.x, end.y);
      for (const turn of [2.6, -2.6]) {
        path.moveTo(end.x, end.y);
        path.lineTo(end.x + head * Math.cos(angle + turn), end.y + head * Math.sin(angle + turn));
      }
    }
  }
  return { path, place: new DOMMatrix(), colour: "#ffd166", thin: true };
}

function planeLinesOf(plane, voxel, density) {
  const lines = [];
  if (element("plane-grid").checked) lines.push(planeGrid(plane, voxel));
  const isOutlined = state.outlines || hasManyLabels, other = `${state.other}_labels`;
  if (isOutlined && voxels.fixed_labels) lines.push(...outlinePlane(plane, voxel, "fixed_labels"));
  if (isOutlined && voxels[other]) lines.push(...outlinePlane(plane, voxel, other).map((line) => ({ ...line, dash: [5, 4] })));
  if (voxels.mask) lines.push(...maskPlane(plane, voxel));
  if (element("arrows").checked) lines.push(planeArrows(plane, voxel, density));
  return lines;
}

// Once per frame at most, after NiiVue has drawn.
let linesAsked = 0;
function drawPlaneLines(viewer) {
  cancelAnimationFrame(linesAsked);
  linesAsked = requestAnimationFrame(() => {
    const canvas = element("plane-lines"), density = fitCanvas(canvas), context = canvas.getContext("2d");
    const voxel = nearestVoxel(crossVoxel(viewer)), found = placePlanes(viewer);
    for (const plane of found) {
      context.save();
      context.beginPath();
      context.rect(...plane.area);
      context.clip();
      for (const line of planeLinesOf(plane, voxel, density)) stroke(context, line, line.place, 1.2 * density);
      context.restore();
    }
    namePlanes(found, density);
  });
}

// The name of each plane, and the letters of what lies on its sides, where the header says it.
function namePlanes(found, density) {
  const box = element("planes-box");
  box.querySelectorAll(".plane").forEach((plane) => plane.remove());
  const sides = { axial: "RLAP", coronal: "RLSI", sagittal: "APSI" }, isPlaced = Object.keys(report.edges).length > 0;
  for (const { name, area } of found) {
    const plane = document.createElement("div");
    plane.className = "plane";
    plane.dataset.plane = name;
    ["left", "top", "width", "height"].forEach((side, n) => (plane.style[side] = `${area[n] / density}px`));
    box.append(plane);
    if (!isPlaced) continue;
    const title = document.createElement("b");
    title.textContent = name;
    plane.append(title);
    ["left", "right", "top", "bottom"].forEach((side, n) => {
      const letter = document.createElement("i");
      letter.className = side;
      letter.textContent = sides[name][n];
      plane.append(letter);
    });
  }
}
