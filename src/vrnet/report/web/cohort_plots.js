/* The distributions of all measures, and the groups of the list beside each other. */
/* Of sorted numbers, between the two nearest, as summary.json has it. */
function percentile(known, part) {
  const place = part * (known.length - 1), below = Math.floor(place), above = Math.ceil(place);
  return known[below] + (place - below) * (known[above] - known[below]);
}

/* Fewer subjects than this are dots: bars of one or two say nothing. */
const FEW = 24;
const WIDE = 240, TALL = 70, RADIUS = 5;
const binCount = subjects => Math.min(24, Math.ceil(2 * Math.sqrt(subjects)));

function svgElement(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function showOnly(isWanted) {
  range = isWanted;
  arrange();
  byId("shown").scrollIntoView();
}

/* One dot per subject where its value lies; one that would touch another lies above it. */
function drawDots(svg, name, rows, partOf) {
  const placed = [];
  for (const row of rows) {
    const x = RADIUS + partOf(values[name][row]) * (WIDE - 2 * RADIUS), near = placed.filter(other => Math.abs(other.x - x) < 2 * RADIUS);
    const floor = near.length ? Math.max(...near.map(other => other.floor)) + 1 : 0;
    placed.push({ x, floor });
    const dot = svgElement("circle", { cx: x, cy: Math.max(RADIUS, TALL - 2 - RADIUS * (1 + 2 * floor)), r: RADIUS, class: colourOf[levelOf(row)] ?? "" });
    dot.append(svgElement("title", {}));
    dot.firstChild.textContent = `${values.subject[row]}: ${textOf(name, values[name][row])}`;
    dot.onclick = () => showOnly(other => other === row);
    svg.append(dot);
  }
}

function drawBars(svg, name, rows, partOf) {
  const bins = binCount(rows.length), wide = WIDE / bins, counts = new Array(bins).fill(0);
  const binOf = row => Math.min(bins - 1, Math.max(0, Math.floor(partOf(values[name][row]) * bins)));
  for (const row of rows) counts[binOf(row)]++;
  const top = Math.max(...counts);
  counts.forEach((count, bin) => {
    const tall = (TALL - 2) * count / top, bar = svgElement("rect", { x: bin * wide + 1, y: TALL - tall, width: wide - 2, height: tall });
    bar.onclick = () => showOnly(row => isMeasured(values[name][row], row) && binOf(row) === bin);
    svg.append(bar);
  });
}

function drawPlots() {
  for (const name of columns.filter(name => isNumber[name] && name !== "suspicion")) {
    const rows = [...values[name].keys()].filter(row => isMeasured(values[name][row], row)).sort((a, b) => values[name][a] - values[name][b]);
    const at = part => values[name][rows[Math.round(part * (rows.length - 1))]];
    const low = at(.005), high = at(.995);
    if (!(high > low)) continue;
    const svg = svgElement("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, role: "img", "aria-label": `${headingOf(name)}: median ${textOf(name, percentile(rows.map(row => values[name][row]), .5))}` });
    (total < FEW ? drawDots : drawBars)(svg, name, rows, value => (value - low) / (high - low));
    const ends = element("figcaption", {}, element("span", {}, textOf(name, low)), element("span", {}, textOf(name, high)));
    byId("plots").append(element("figure", {}, element("b", { title: name }, headingOf(name)), svg, ends));
  }
}

function drawGroups() {
  const by = groups.length ? byId("group").value : null, kinds = by === null ? [] : [...new Set(values[by])].sort();
  const measures = columns.filter(name => isNumber[name] && name !== by && name !== "suspicion");
  const line = (tag, title, cells) => element("tr", { title }, ...cells.map((cell, k) => element(k ? tag : "th", {}, cell)));
  const rows = measures.map(name => line("td", name, [headingOf(name), spread(name, () => true), ...kinds.map(kind => spread(name, row => values[by][row] === kind))]));
  byId("groups").replaceChildren(line("th", "", ["", `all (${total.toLocaleString("en")})`, ...kinds.map(kind => `${kind || "–"} (${values[by].filter(value => value === kind).length.toLocaleString("en")})`)]), ...rows);
  tellMoreGroups();
}

const tellMoreGroups = () => tellMore(byId("spreads"), byId("more_groups"));

function spread(name, isWanted) {
  const wanted = [...values[name].keys()].filter(isWanted);
  const known = wanted.filter(row => isMeasured(values[name][row], row)).map(row => values[name][row]).sort((a, b) => a - b);
  if (!known.length) return "–";
  const at = part => textOf(name, percentile(known, part)), ends = known.length > 1 ? ` (${at(.05)} to ${at(.95)})` : "";
  return at(.5) + ends + (known.length < wanted.length ? `, of ${known.length.toLocaleString("en")}` : "");
}

if (groups.length) byId("group").onchange = drawGroups;
byId("spreads").addEventListener("scroll", tellMoreGroups);
addEventListener("resize", tellMoreGroups);
byId("distributions").open = !isSmall;
drawPlots();
drawGroups();
