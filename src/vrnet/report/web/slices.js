// The arrays of the page: each is a sheet of 8-bit tiles, one tile per slice.
function newCanvas() {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}
const scratch = newCanvas().getContext("2d", { willReadFrequently: true });

function readTile(sheet, k) {
  const left = (k % columns) * width, top = Math.floor(k / columns) * height;
  scratch.drawImage(sheet, left, top, width, height, 0, 0, width, height);
  const rgba = scratch.getImageData(0, 0, width, height).data;
  const bytes = new Uint8Array(width * height);
  for (let i = 0; i < bytes.length; i++) bytes[i] = rgba[4 * i];
  return bytes;
}

// Every array at slice k, with the outlines traced so far; only the slice asked for last is held.
let latest = { at: -1 };
function slice(k) {
  const at = volume ? state.z : k;
  if (latest.at !== at) latest = { at, paths: new Map(), ...(volume ? readVolumeSlice(at) : readTiles(at)) };
  return latest;
}
const readTiles = (k) => Object.fromEntries(Object.entries(sheets).map(([name, sheet]) => [name, readTile(sheet, k)]));

// What the bytes mean at pixel i. Motion is in pixels, coded by its square root; times the spacing it is in mm.
function motion(s, axis, i) {
  if (s.motion) return s.motion[axis][i];
  const root = (s[`u${axis}`][i] - 128) / 127;
  return root * Math.abs(root) * report.largest[axis];
}
const determinant = (s, i) => s.det[i] / 64 - 1;
const intensity = (name, byte) => report.windows[name][0] + (byte / 255) * (report.windows[name][1] - report.windows[name][0]);
