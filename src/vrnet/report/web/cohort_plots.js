/* Histograms of all measures, and the groups of the list beside each other. */
/* Of sorted numbers, between the two nearest, as summary.json has it. */
function percentile(known, part) {
  const place = part * (known.length - 1), below = Math.floor(place), above = Math.ceil(place);
  return known[below] + (place - below) * (known[above] - known[below]);
}

/* Of few subjects wide bars, which have something in them. */
const binCount = subjects => Math.min(24, Math.max(6, Math.ceil(2 * Math.sqrt(subjects))));

function drawPlots() {
  for (const name of columns.filter(name => isNumber[name] && name !== "suspicion")) {
    const known = values[name].filter((value, row) => isMeasured(value, row)).sort((a, b) => a - b);
    const at = part => known[Math.round(part * (known.length - 1))];
    const low = at(.005), high = at(.995), bins = binCount(known.length), wide = 240 / bins;
    if (!(high > low)) continue;
    const binOf = value => Math.min(bins - 1, Math.max(0, Math.floor((value - low) / (high - low) * bins)));
    const counts = new Array(bins).fill(0);
    for (const value of known) counts[binOf(value)]++;
    const top = Math.max(...counts), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 240 70");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${headingOf(name)}: median ${textOf(name, percentile(known, .5))}`);
    counts.forEach((count, bin) => {
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect"), tall = 68 * count / top;
      for (const [attribute, value] of Object.entries({ x: bin * wide + 1, y: 70 - tall, width: wide - 2, height: tall })) bar.setAttribute(attribute, value);
      bar.onclick = () => { range = row => isMeasured(values[name][row], row) && binOf(values[name][row]) === bin; arrange(); byId("shown").scrollIntoView(); };
      svg.append(bar);
    });
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
  const known = values[name].filter((value, row) => isMeasured(value, row) && isWanted(row)).sort((a, b) => a - b);
  const at = part => textOf(name, percentile(known, part));
  if (known.length < 2) return known.length ? at(.5) : "–";
  return `${at(.5)} (${at(.05)} to ${at(.95)})`;
}

if (groups.length) byId("group").onchange = drawGroups;
byId("spreads").addEventListener("scroll", tellMoreGroups);
addEventListener("resize", tellMoreGroups);
byId("distributions").open = !isSmall;
drawPlots();
drawGroups();
