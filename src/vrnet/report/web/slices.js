// The arrays of the page: a sheet of 8-bit tiles for each, one tile a slice.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const report = read("data");
const colours = read("colours");
const { width, height, columns } = report.tiles;

async function loaded([name, address]) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return [name, image];
}
const sheets = Object.fromEntries(await Promise.all(Object.entries(report.sheets).map(loaded)));

function blank() {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}
const scratch = blank().getContext("2d", { willReadFrequently: true });

function tile(sheet, k) {
  const left = (k % columns) * width, top = Math.floor(k / columns) * height;
  scratch.drawImage(sheet, left, top, width, height, 0, 0, width, height);
  const rgba = scratch.getImageData(0, 0, width, height).data;
  const bytes = new Uint8Array(width * height);
  for (let i = 0; i < bytes.length; i++) bytes[i] = rgba[4 * i];
  return bytes;
}

// Every array at slice k; the last slice asked for is kept.
let kept = { k: -1 };
function slice(k) {
  if (kept.k !== k) {
    const arrays = Object.entries(sheets).map(([name, sheet]) => [name, tile(sheet, k)]);
    kept = { k, paths: new Map(), ...Object.fromEntries(arrays) };
  }
  return kept;
}

// What the bytes mean at pixel i. Motion is in pixels (times the spacing, in mm), coded by its square root.
function motion(s, axis, i) {
  const root = (s[`u${axis}`][i] - 128) / 127;
  return root * Math.abs(root) * report.largest[axis];
}
const determinant = (s, i) => s.det[i] / 64 - 1;
const intensity = (byte) => report.window[0] + (byte / 255) * (report.window[1] - report.window[0]);
