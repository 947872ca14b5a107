// Three planes of a volume through a cross, drawn by NiiVue; where WebGL2 is missing, the viewer of slices stays.
const PLANES = ["axial", "coronal", "sagittal"];
const TINTS = { motion: colours.difference, determinant: colours.jacobian };
const TINT_OPACITY = 0.6, MIN_TINTED_CHANGE = 0.08, MIN_BOX_HEIGHT = 320;

const dot = (row, v) => row[0] * v[0] + row[1] * v[1] + row[2] * v[2];
const toLps = (voxel) => volume.to_lps.map((row) => dot(row, voxel) + row[3]);
function fromLps(point) {
  const matrix = volume.to_lps, off = point.map((value, axis) => value - matrix[axis][3]);
  const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
  const column = [0, 1, 2].map((axis) => matrix.map((row) => row[axis]));
  const det = dot(column[0], cross(column[1], column[2]));
  return [0, 1, 2].map((axis) => dot(cross(column[(axis + 1) % 3], column[(axis + 2) % 3]), off) / det);
}
// NiiVue's space is RAS; that of ITK, and of this page, LPS.
const flipXY = ([x, y, z]) => [-x, -y, z];

// NiiVue's script comes as text; it defines a global object.
async function loadNiiVue() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpack(element("niivue").textContent));
  document.head.append(script);
  return globalThis.niivue;
}

function joinBytes(header, bytes) {
  const start = Uint8Array.from(atob(header), (character) => character.charCodeAt(0));
  const file = new Uint8Array(start.length + bytes.length);
  file.set(start);
  file.set(bytes, start.length);
  return file.buffer;
}

const newImage = (NVImage, name, header, bytes, colormap, opacity) =>
  NVImage.new(joinBytes(header, bytes), `${name}.nii`, colormap, opacity, null, 0, 255);

// Fixed and the other image in one volume, blended or as a checkerboard of cubes.
function composeVolume(bytes) {
  const a = voxels.fixed, b = voxels[state.other], [w, h] = volume.shape;
  if (state.mode === "fade") {
    const t = Math.round(256 * state.fade);
    for (let i = 0; i < bytes.length; i++) bytes[i] = (a[i] * (256 - t) + b[i] * t) >> 8;
    return;
  }
  const side = Math.ceil(Math.max(w, h) / CHECKERBOARD_SQUARES);
  for (let i = 0, x = 0, y = 0, z = 0; i < bytes.length; i++) {
    bytes[i] = ((Math.floor(x / side) + Math.floor(y / side) + Math.floor(z / side)) % 2 ? b : a)[i];
    if (++x < w) continue;
    x = 0;
    if (++y === h) [y, z] = [0, z + 1];
  }
}

// The bytes of a colour overlay. 0 is transparent: where nothing moves, or hardly grows or shrinks.
function tintBytes(name) {
  const [w, h, n] = volume.motion_shape, f = volume.motion_factor, bytes = new Uint8Array(w * h * n);
  if (name === "determinant") {
    const [low, high] = colours.range;
    for (let i = 0; i < bytes.length; i++) {
      const det = voxels.det[i] / 64 - 1, byte = Math.round((255 * (det - low)) / (high - low));
      bytes[i] = Math.abs(det - 1) < MIN_TINTED_CHANGE ? 0 : Math.max(1, Math.min(255, byte));
    }
    return bytes;
  }
  const scale = volume.largest.map((largest) => largest / 127);
  for (let i = 0; i < bytes.length; i++) {
    const u = scale.map((unit, axis) => (voxels[`u${axis}`][i] - 128) * unit * report.spacing[axis]);
    bytes[i] = Math.min(255, Math.round((255 * Math.hypot(...u)) / volume.longest_mm));
  }
  return bytes;
}

function tintColours(stops) {
  const [R, G, B] = [0, 1, 2].map((c) => stops.map((stop) => parseHex(stop)[c]));
  const I = stops.map((_, i) => Math.round((255 * i) / (stops.length - 1)));
  return { R, G, B, A: I.map((i) => (i ? 255 : 0)), I };
}

// At each change of an image NiiVue lights the volume, to render it. Planes need no light, and without a graphics card
// it takes most of the time: its two passes draw nothing.
function skipLighting(viewer) {
  const { gl } = viewer, refreshLayers = viewer.refreshLayers.bind(viewer);
  viewer.blurShader = viewer.sobelFirstOrderShader = { uniforms: {}, use: () => gl.enable(gl.RASTERIZER_DISCARD) };
  viewer.refreshLayers = (...layer) => {
    refreshLayers(...layer);
    gl.disable(gl.RASTERIZER_DISCARD);
  };
}

async function openPlanes() {
  const { Niivue, NVImage } = await loadNiiVue();
  const viewer = new Niivue({
    backColor: [0, 0, 0, 1], crosshairColor: [1, 0.85, 0.2, 0.9], isOrientationTextVisible: false,
    crosshairWidth: 0.4, crosshairWidthUnit: "percent", // of the volume: voxels of a small one would hide it
    isRadiologicalConvention: true, sagittalNoseLeft: true, multiplanarShowRender: 0, dragAndDropEnabled: false,
    dragMode: 0, multiplanarPadPixels: 4, viewModeHotKey: "", clipPlaneHotKey: "", cycleClipPlaneHotKey: "", logLevel: "error",
  });
  await viewer.attachToCanvas(element("planes"), false);
  skipLighting(viewer);
  for (const [name, stops] of Object.entries(TINTS)) viewer.addColormap(name, tintColours(stops));
  const bytes = voxels.fixed.slice();
  composeVolume(bytes);
  viewer.addVolume(await newImage(NVImage, "images", volume.header, bytes, "gray", 1));
  return { viewer, NVImage };
}

// The voxel under the cross, which may lie between voxels.
const crossVoxel = (viewer) => fromLps(flipXY([...viewer.frac2mm(viewer.scene.crosshairPos, 0, true)]));
const nearestVoxel = (voxel) => voxel.map((value, axis) => Math.max(0, Math.min(volume.shape[axis] - 1, Math.round(value))));
function moveCross(viewer, voxel) {
  viewer.scene.crosshairPos = viewer.mm2frac(flipXY(toLps(voxel)), 0, true);
  viewer.createOnLocationChange();
  viewer.drawScene();
}

// What is known of a voxel, in words.
function describeVoxel([x, y, z]) {
  const [w, h] = volume.shape, i = x + w * (y + h * z), names = ["no label", ...report.labels.map((label) => label.name)];
  const greys = ["fixed", "moving", "warped"].map((name) => `${name} ${intensity(name, voxels[name][i]).toPrecision(3)}`);
  const u = displacement(x, y, z), mm = volume.to_lps.map((row) => dot(row, u));
  const list = (values) => values.map((value) => toFixed(value, 1)).join(", ");
  const label = voxels.fixed_labels ? ` · ${names[voxels.fixed_labels[i]]}` : "";
  return `LPS (${list(toLps([x, y, z]))}) ${report.unit} · ${greys.join(" · ")} · moves by ${toFixed(Math.hypot(...mm), 1)} ${report.unit}, LPS (${list(mm)})` +
    ` · det ${toFixed(sample("det", x, y, z) / 64 - 1, 2)}${label}`;
}

// Where NiiVue put the planes: for each, the place of a voxel on the canvas is offset + matrix · voxel.
function placePlanes(viewer) {
  return viewer.screenSlices.map((tile) => {
    const [left, top, width, height] = tile.leftTopWidthHeight;
    const place = (voxel) => {
      const mm = viewer.frac2mm(viewer.mm2frac(flipXY(toLps(voxel)), 0, true));
      const [across, up] = { 0: [mm[0], mm[1]], 1: [mm[0], mm[2]], 2: [mm[1], mm[2]] }[tile.axCorSag];
      const x = (across - tile.leftTopMM[0]) / tile.fovMM[0], y = (up - tile.leftTopMM[1]) / tile.fovMM[1];
      return width < 0 ? [left - x * -width, top + (1 - y) * height] : [left + x * width, top + (1 - y) * height];
    };
    const offset = place([0, 0, 0]);
    const columns = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((unit) => place(unit).map((value, axis) => value - offset[axis]));
    const across = columns.map((column) => Math.hypot(...column)), normal = across.indexOf(Math.min(...across));
    const area = width < 0 ? [left + width, top, -width, height] : [left, top, width, height];
    return { name: PLANES[tile.axCorSag], area, offset, columns, normal };
  });
}

// The planes as large as the structures allow, or whole. NiiVue shows (mm − pan) / zoom of where it would else look.
function zoomPlanes(viewer) {
  const inPlane = (voxel) => [...viewer.frac2mm(viewer.mm2frac(flipXY(toLps(voxel)), 0, true))].slice(0, 3);
  const whole = [inPlane([-0.5, -0.5, -0.5]), inPlane(volume.shape.map((n) => n - 0.5))], box = volume.box.map(inPlane);
  const length = ([a, b], axis) => Math.abs(b[axis] - a[axis]), middle = ([a, b], axis) => (a[axis] + b[axis]) / 2;
  const zoom = state.zoom ? Math.min(...[0, 1, 2].map((axis) => length(whole, axis) / length(box, axis))) : 1;
  const pan = [0, 1, 2].map((axis) => middle(whole, axis) - zoom * middle(state.zoom ? box : whole, axis));
  viewer.scene.pan2Dxyzmm = [...pan, state.zoom ? Math.max(zoom, 1.001) : 1];
  viewer.drawScene();
}

// A browser prints no picture of WebGL: it goes below the lines, which are printed.
function printPlanes(viewer) {
  viewer.drawScene();
  cancelAnimationFrame(linesAsked);  // the lines that are there stay
  const context = element("plane-lines").getContext("2d");
  context.globalCompositeOperation = "destination-over";
  context.drawImage(element("planes"), 0, 0, context.canvas.width, context.canvas.height);
}

async function startPlanes() {
  const [figure, hint] = [element("volume"), element("no-planes")];
  figure.hidden = false;
  hint.hidden = true;
  figure.closest(".viewer").classList.add("has-planes");
  document.querySelectorAll(".plane-controls").forEach((control) => (control.hidden = false));
  shapeBox();
  const { viewer, NVImage } = await openPlanes();
  const tints = {};
  const wanted = () => `${state.other} ${state.mode} ${state.fade}`;
  let shown = wanted(), z = -1;

  function follow() {
    const voxel = nearestVoxel(crossVoxel(viewer));
    element("position").textContent = describeVoxel(voxel);
    z = voxel[2];
    if (z !== state.z) showExactSlice(z);
  }
  async function showTint(name) {
    state.tint = name;
    while (viewer.volumes.length > 1) viewer.removeVolume(viewer.volumes[1]);
    tints[name] ??= name && (await newImage(NVImage, name, volume.motion_header, tintBytes(name), name, TINT_OPACITY));
    if (name && state.tint === name) viewer.addVolume(tints[name]);
    showBar(name);
  }
  planes = {
    update() {
      if (wanted() !== shown) {
        shown = wanted();
        composeVolume(viewer.volumes[0].img);
        viewer.updateGLVolume();
      }
      if (viewer.scene.pan2Dxyzmm[3] > 1 !== state.zoom) zoomPlanes(viewer);
      if (state.z !== z) moveCross(viewer, [...nearestVoxel(crossVoxel(viewer)).slice(0, 2), state.z]);
      drawPlaneLines(viewer);
    },
  };
  viewer.onLocationChange = () => {
    follow();
    drawPlaneLines(viewer);
  };
  const drawScene = viewer.drawScene.bind(viewer);
  viewer.drawScene = () => {
    drawScene();
    drawPlaneLines(viewer);
  };
  inputsNamed("tint").forEach((input) => input.addEventListener("change", () => showTint(input.value)));
  for (const id of ["arrows", "plane-grid"]) element(id).addEventListener("change", () => drawPlaneLines(viewer));
  element("peak").addEventListener("click", () => moveCross(viewer, volume.peak));
  element("planes-box").addEventListener("wheel", (event) => event.stopPropagation());
  addEventListener("beforeprint", () => printPlanes(viewer));
  addEventListener("afterprint", () => drawPlaneLines(viewer));
  new ResizeObserver(shapeBox).observe(element("volume"));
  moveCross(viewer, [...volume.start.slice(0, 2), state.z]);
}

// The legend of a colour overlay.
function showBar(name) {
  const bar = element("tint-bar"), ends = { motion: ["0", "motion", `${volume.longest_mm.toPrecision(3)} ${report.unit}`], determinant: ["0 shrinks", "1", "grows 2"] };
  bar.hidden = !name;
  if (!name) return;
  bar.querySelector("i").style.background = `linear-gradient(90deg, ${TINTS[name].join(", ")})`;
  ["low", "middle", "high"].forEach((end, n) => (bar.querySelector(`[data-${end}]`).textContent = ends[name][n]));
}

// The box of the planes is as high as they need: side by side where there is room, else two above one.
function shapeBox() {
  const size = volume.extent, box = element("planes-box"), width = box.clientWidth;
  const row = Math.max(size[1], size[2]) / (2 * size[0] + size[1]), grid = (size[1] + size[2]) / (size[0] + size[1]);
  const highest = width > 700 ? Math.max(MIN_BOX_HEIGHT, Math.min(pictureRoom(), innerHeight * 0.8)) : innerHeight * 0.8;
  const height = Math.min((width > 700 ? row : grid) * width, highest);
  box.style.height = `${Math.round(height)}px`;
}

const hasWebGL = () => Boolean(document.createElement("canvas").getContext("webgl2"));
function closePlanes(error) {
  console.warn(error);
  planes = null;
  element("volume").hidden = true;
  element("no-planes").hidden = false;
  document.querySelector(".has-planes").classList.remove("has-planes");
  document.querySelectorAll(".plane-controls").forEach((control) => (control.hidden = true));
  drawAll();
}
if (hasWebGL()) await startPlanes().catch(closePlanes);
