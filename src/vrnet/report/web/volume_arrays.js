// The arrays of a volume: bytes in base 85 and gzip, first axis fastest; smooth ones as differences of neighbours.
const volume = report.volume;
const BASE85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~";

function fromBase85(text) {
  const digit = new Uint8Array(128), bytes = new Uint8Array(Math.ceil(text.length / 5) * 4);
  for (let i = 0; i < 85; i++) digit[BASE85.charCodeAt(i)] = i;
  const view = new DataView(bytes.buffer);
  for (let i = 0, at = 0; i < text.length; i += 5, at += 4) {
    let value = 0;
    for (let n = 0; n < 5; n++) value = value * 85 + (i + n < text.length ? digit[text.charCodeAt(i + n)] : 84);
    view.setUint32(at, value);
  }
  return bytes.subarray(0, Math.floor((text.length * 4) / 5));
}

async function unpack(text) {
  const stream = new Blob([fromBase85(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// From differences to bytes, in place: sums down each slice, then across it, modulo 256.
function sumDifferences(bytes, [w, h, n]) {
  for (let k = 0; k < n; k++) {
    const first = k * w * h;
    for (let i = first + w; i < first + w * h; i++) bytes[i] += bytes[i - w];
    for (let i = first; i < first + w * h; i++) if ((i - first) % w) bytes[i] += bytes[i - 1];
  }
  return bytes;
}

const isSampled = (name) => name === "det" || /^u\d$/.test(name);
async function readVoxels() {
  const smooth = Object.entries(volume.smooth).map(async ([name, text]) => [
    name, sumDifferences(await unpack(text), isSampled(name) ? volume.motion_shape : volume.shape),
  ]);
  const maps = Object.entries(volume.maps).map(async ([name, text]) => [name, await unpack(text)]);
  return Object.fromEntries(await Promise.all([...smooth, ...maps]));
}
const voxels = volume && (await readVoxels());

// A sampled array between its samples, at voxel (x, y, z): linear, and beyond the last sample as there.
function sample(name, x, y, z) {
  const [w, h, n] = volume.motion_shape, f = volume.motion_factor, bytes = voxels[name];
  const [i, j, k] = [Math.min(x / f, w - 1), Math.min(y / f, h - 1), Math.min(z / f, n - 1)];
  const [i0, j0, k0] = [Math.floor(i), Math.floor(j), Math.floor(k)], [s, t, r] = [i - i0, j - j0, k - k0];
  const at = i0 + w * (j0 + h * k0), dx = s ? 1 : 0, dy = t ? w : 0, dz = r ? w * h : 0;
  const low = (1 - t) * (bytes[at] + s * (bytes[at + dx] - bytes[at])) + t * (bytes[at + dy] + s * (bytes[at + dy + dx] - bytes[at + dy]));
  if (!r) return low;
  const up = at + dz;
  return (1 - r) * low + r * ((1 - t) * (bytes[up] + s * (bytes[up + dx] - bytes[up])) + t * (bytes[up + dy] + s * (bytes[up + dy + dx] - bytes[up + dy])));
}

// The displacement at voxel (x, y, z), in voxels along each axis.
const displacement = (x, y, z) => [0, 1, 2].map((axis) => ((sample(`u${axis}`, x, y, z) - 128) / 127) * volume.largest[axis]);

// Every array at slice z across the last axis, as `slice` has them.
function readVolumeSlice(z) {
  const [w, h] = volume.shape, size = w * h, arrays = {};
  for (const name of Object.keys(voxels)) if (!isSampled(name)) arrays[name] = voxels[name].subarray(z * size, (z + 1) * size);
  arrays.det = Float32Array.from({ length: size }, (_, i) => sample("det", i % w, Math.floor(i / w), z));
  arrays.motion = [0, 1, 2].map(() => new Float32Array(size));
  for (let i = 0; i < size; i++) displacement(i % w, Math.floor(i / w), z).forEach((u, axis) => (arrays.motion[axis][i] = u));
  return arrays;
}
