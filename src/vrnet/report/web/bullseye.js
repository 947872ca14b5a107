// The 16 segments: basal outside, apical inside, the anterior wall on top and the septum on the left.
const RADII = [[70, 100], [42, 70], [14, 42]];
const bullseye = element("bullseye"), halo = svgElement("path", { class: "halo" });

function sectorPath(level, i, count) {
  const [inner, outer] = RADII[level], half = Math.PI / count, middle = Math.PI / 2 + (2 * Math.PI * i) / count;
  const at = (radius, angle) => `${(radius * Math.cos(angle)).toFixed(2)} ${(-radius * Math.sin(angle)).toFixed(2)}`;
  const [from, to] = [middle - half, middle + half];
  const path = `M${at(inner, from)}L${at(outer, from)}A${outer} ${outer} 0 0 0 ${at(outer, to)}L${at(inner, to)}A${inner} ${inner} 0 0 1 ${at(inner, from)}Z`;
  const radius = (inner + outer) / 2;
  return { path, x: radius * Math.cos(middle), y: -radius * Math.sin(middle) };
}

// The value of a segment at the frame that is shown, or at its peak; undefined where no slice shows it.
function segmentValue(region) {
  const { regions, peaks } = strainOf(), isPeak = inputsNamed("when").some((input) => input.checked && input.value === "peak");
  return regions[region]?.[isPeak ? peaks[region] : state.t];
}

function chooseSegment(region) {
  state.segment = state.segment === region ? undefined : region;
  charts[0].draw();
  followSegments();
}

const SIDES = { anterior: [0, -110], septum: [-112, 0, -90], lateral: [112, 0, 90], inferior: [0, 111] };

function drawBullseye() {
  for (const [side, [x, y, turn = 0]] of Object.entries(SIDES)) {
    bullseye.append(svgElement("text", { class: "side", transform: `translate(${x} ${y}) rotate(${turn})` }, side));
  }
  bullseye.append(halo);
  for (const { region, number, name, level } of report.segments) {
    const count = level === 2 ? 4 : 6, i = number - 1 - 6 * level, { path, x, y } = sectorPath(level, i, count);
    const sector = svgElement("path", { d: path, tabindex: 0, role: "button", "aria-pressed": "false", "data-region": region });
    sector.append(svgElement("title", {}, `${number}, ${name}`));
    sector.addEventListener("click", () => chooseSegment(region));
    sector.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      chooseSegment(region);
    });
    bullseye.insertBefore(sector, halo);
    bullseye.append(svgElement("text", { x, y, "data-value": region }));
  }
}

// Colours and numbers at this frame. The limits are those of the wall.
function followSegments() {
  if (!bullseye) return;
  const { direction, unit } = strainOf(), limit = report.limits[direction] * (unit === "%/s" ? 10 : 1);
  element("bullseye-title").textContent = `${element("measure").selectedOptions[0].textContent}, ${unit}`;
  element("bullseye-low").textContent = `−${limit} ${unit}`;
  element("bullseye-high").textContent = `${limit} ${unit}`;
  for (const { region, number, name } of report.segments) {
    const value = segmentValue(region), sector = bullseye.querySelector(`[data-region="${region}"]`), text = bullseye.querySelector(`[data-value="${region}"]`);
    sector.classList.toggle("absent", value === undefined);
    sector.style.fill = value === undefined ? "" : strainColour(value, limit);
    sector.setAttribute("aria-pressed", String(region === state.segment));
    sector.setAttribute("aria-label", `${number}, ${name}: ${value === undefined ? "not seen" : `${toFixed(value, 1)} ${unit}`}`);
    text.textContent = value === undefined ? "–" : toFixed(value, 0);
    text.style.fill = value !== undefined && Math.abs(value) > 0.75 * limit ? "#fff" : value === undefined ? "" : "#1b212b";
    if (region === state.segment) halo.setAttribute("d", sector.getAttribute("d"));
    if (region === state.segment) element("segment").textContent = `${number}, ${name}: ${value === undefined ? "no slice shows it" : `${toFixed(value, 1)} ${unit}`}`;
  }
  halo.style.display = state.segment ? "" : "none";
  if (!state.segment) element("segment").textContent = "Choose a segment to see its curve.";
}
if (bullseye) drawBullseye();
