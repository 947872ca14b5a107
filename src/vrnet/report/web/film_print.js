// On paper the film is a row of frames: the reference, the one where the ventricle is smallest, and those half-way.
// Curves and segments are told where it is smallest: in the reference, which is shown at first, all strain is 0.
const PRINTED_WIDTH = 480;
let onScreen = null, wasPlaying = false;

const ventricle = ["LV", "RV"].find((name) => report.volumes?.[name]);

function smallestFrame() {
  const curve = report.volumes?.[ventricle];
  return curve ? curve.indexOf(Math.min(...curve)) : (report.reference + Math.floor(report.frames / 2)) % report.frames;
}

// [[frame, what it is]], each frame once; without a ventricle, quarters of the cycle.
function printedFrames() {
  const n = report.frames, r = report.reference, last = smallestFrame(), ahead = (last - r + n) % n;
  const smallest = ventricle ? `, smallest ${ventricle}` : "";
  const row = [[r, ", reference"], [(r + Math.round(ahead / 2)) % n, ""], [last, smallest], [(last + Math.round((n - ahead) / 2)) % n, ""]];
  return row.filter(([t], i) => row.findIndex(([other]) => other === t) === i);
}

function printFrames() {
  element("printed-frames").replaceChildren(...printedFrames().map(([t, what]) => {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas"), caption = document.createElement("figcaption");
    Object.assign(canvas, { width: PRINTED_WIDTH, height: Math.round((PRINTED_WIDTH * report.size[1] * report.spacing[1]) / (report.size[0] * report.spacing[0])) });
    drawFrame(canvas, t, 4);
    caption.textContent = `frame ${t + 1} of ${report.frames}${what}`;
    figure.append(canvas, caption);
    return figure;
  }));
  const slice = report.depth > 1 ? `Slice ${report.slices[state.k]} of ${report.depth}. ` : "", limit = report.limits?.[state.wall];
  const wall = limit ? `Wall: ${state.wall} strain, from −${limit} % (blue, shortens) over 0 (pale yellow) to ${limit} % (red, lengthens). ` : "";
  const values = `Values beside the curves${report.segments.length ? ", and in the segments," : ""} are those of frame ${state.t + 1}.`;
  element("printed-words").textContent = `${slice}${wall}${charts.length ? values : ""}`;
}

addEventListener("beforeprint", () => {
  [onScreen, wasPlaying] = [state.t, started !== null];
  stop();
  showFrame(smallestFrame());
  printFrames();
});
addEventListener("afterprint", () => {
  if (onScreen === null) return;
  showFrame(onScreen);
  if (wasPlaying) play();
  onScreen = null;
});
