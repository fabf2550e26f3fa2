// Puts the page together.

/** Colours of the page's ground: those of CSS by name, those of stages by tone and hue. */
class Colors {
  constructor(grounds) {
    this.grounds = grounds;
    this.font = getComputedStyle(document.body).fontFamily;
    this.use("light");
  }

  use(ground) {
    this.ground = ground;
    this.tones = this.grounds[ground === "dark" ? 1 : 0];
    const root = document.documentElement;
    root.dataset.ground = ground;
    this.tones.forEach((hues, number) => hues.forEach((color, hue) =>
      root.style.setProperty(`--tone-${number}-${hue}`, color)));
    this.styles = getComputedStyle(root);
    this.known = new Map();
  }

  css(name) {
    if (!this.known.has(name)) this.known.set(name, this.styles.getPropertyValue(name).trim());
    return this.known.get(name);
  }

  fill(number, stage) { return this.tones[number][stage % HUES]; }

  textOn(number) {
    const isPale = number <= 1 || (number === 3 && this.ground === "dark");
    return isPale ? "#14171c" : "#ffffff";
  }
}

/** Follows the system until the reader chooses; told what to draw again. */
function startTheme(colors, redraw) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const buttons = [...document.querySelectorAll("[data-theme]")];
  let choice = "auto";
  const apply = () => {
    colors.use(choice === "auto" ? (system.matches ? "dark" : "light") : choice);
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.theme === choice));
    }
    redraw();
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      choice = button.dataset.theme;
      apply();
    });
  }
  system.addEventListener("change", apply);
  apply();
}

class Tooltip {
  constructor() {
    this.box = document.getElementById("tooltip");
    this.announcement = document.getElementById("announcement");
  }

  show(found, x, y) {
    const lines = found.lines.map(([name, value]) =>
      element("tr", {}, element("td", {}, name), element("td", {}, value)));
    this.box.replaceChildren(element("b", {}, found.title),
      element("span", { class: "quiet" }, found.note), element("table", {}, ...lines));
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
    const top = y + 16 + height > innerHeight ? y - 12 - height : y + 16;
    this.box.style.left = `${Math.max(left, 4)}px`;
    this.box.style.top = `${Math.max(top, 4)}px`;
  }

  announce(found) {
    this.announcement.textContent = `${found.title}, ${found.note}, `
      + found.lines.map((line) => line.join(" ")).join(", ");
  }

  hide() { this.box.hidden = true; }
}

function fillHead(plan) {
  const { title } = plan;
  document.getElementById("title").textContent = `${title.name} on ${title.topology}`;
  document.getElementById("subtitle").textContent =
    `${title.shape} · ${title.batches} · ${title.schedule} · ${plan.origin} timeline`;
  document.getElementById("headline").append(...plan.figures.map(({ name, value }) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  document.getElementById("warnings").append(...plan.warnings.map((warning) =>
    element("p", {}, warning)));
}

/** A swatch in the hues of the first stages: what it means is in its lightness. */
function kindSwatch(kind, stages) {
  const count = Math.min(Math.max(stages, 1), 3);
  const stops = Array.from({ length: count }, (_, stage) =>
    `${tone(kind.tone, stage)} ${(100 * stage) / count}% ${(100 * (stage + 1)) / count}%`);
  return element("span", {
    class: kind.stream === Stream.compute ? "swatch" : "swatch thin",
    style: { background: `linear-gradient(90deg, ${stops.join(", ")})` },
  });
}

/** What hue, lightness and height of a bar mean. */
function fillLegend(plan) {
  const seen = new Set(plan.lanes.flatMap((lane) => [...new Set(lane.kind)]));
  const kinds = plan.kinds.filter((kind, number) => seen.has(number));
  const item = (kind) => element("span", {}, kindSwatch(kind, plan.stages.length), kind.words);
  const group = (words, items) => (items.length === 0 ? []
    : [element("p", {}, element("span", {}, words), ...items)]);
  const repeats = plan.stages.length > HUES ? `; ${HUES} has that of 0 again` : "";
  const hues = Array.from({ length: Math.min(plan.stages.length, HUES) }, (_, stage) =>
    stageChip(stage));
  document.getElementById("legend").append(
    ...group(`Hue: the stage${repeats}`, hues),
    ...group("Lightness: the work", kinds.filter(({ stream }) => stream === Stream.compute)
      .map(item)),
    ...group("Thin bars: communication",
      kinds.filter(({ stream }) => stream !== Stream.compute).map(item)));
}

function fillTables(plan) {
  const put = (id, ...children) => document.getElementById(id).append(...children);
  put("stages", stagesTable(plan));
  put("topology", ...topologyBoxes(plan));
  const idle = plan.servers.flatMap((server) => server.stages)
    .filter((stages) => stages.length === 0).length;
  const servers = plan.servers.length * plan.serversOfGroup;
  const devices = plan.servers.reduce((sum, server) => sum + server.stages.length, 0);
  document.getElementById("topology-note").textContent =
    `${servers} server${servers === 1 ? "" : "s"}, ${devices} ${plan.groupSize > 1
      ? `groups of ${plan.groupSize} devices` : "devices"}; a number is a stage${idle > 0 ? `; ${idle} idle` : ""}`;
  put("path", ...stackedParts(pathParts(plan), plan.iteration));
  const { parts, total } = deviceTimeParts(plan);
  put("device-time", ...stackedParts(parts, total));
  put("lanes", lanesTable(plan));
  if (plan.baselines.length > 0) {
    const scale = baselineScale(plan);
    put("baselines", baselineBars(plan, scale));
    put("baselines-note", "simulated with the same costs; shorter is better"
      + (scale.isCut ? `; bars end at ${MOST_TIMES} times this plan, torn ones are longer` : ""));
  }
  else document.getElementById("baselines-section").hidden = true;
  for (const [id, name] of [["parallelisms", "parallelism"], ["schedules", "schedule"]]) {
    if (plan[id].length > 0) put(id, consideredTable(name, plan[id]));
    else document.getElementById(`${id}-section`).hidden = true;
  }
  put("footer", ...plan.search.map((line) => element("p", {}, line)),
    element("p", {}, plan.title.tool));
}

function startSearch(gantt, panel) {
  const input = document.getElementById("search");
  const matches = document.getElementById("matches");
  let next = 0;
  input.addEventListener("input", () => {
    const count = gantt.search(input.value);
    matches.textContent = count === null ? "" : count === 1 ? "1 action" : `${count} actions`;
    next = 0;
    panel.invalidate();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && gantt.found && gantt.found.length > 0) {
      const { lane, place } = gantt.found[next++ % gantt.found.length];
      gantt.select(panel, lane, place);
    } else if (event.key === "Escape") {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === input) return;
    event.preventDefault();
    input.focus();
  });
}

function startCharts(plan, colors) {
  const view = new TimeView(plan.iteration);
  const tooltip = new Tooltip();
  const gantt = new GanttContent(plan, colors);
  const flights = flightRows(plan);
  document.getElementById("links-note").textContent = flights.full > 0
    ? `what a stage sends and reduces; full height is ${showBytes(flights.full)}`
    : "nothing is sent";
  const make = (id, content, maxHeight, label) => new TimePanel(document.getElementById(id), view,
    content, { maxHeight, label, tooltip, colors });
  const panels = {
    gantt: make("gantt", gantt, GANTT_HEIGHT, "Timeline: arrows pan, plus and minus zoom, shift and arrows "
      + "go from action to action"),
    memory: make("memory", new StepContent(plan, colors, memoryRows(plan), (row, held) => [
      ["holds", showBytes(held)], ["limit", showBytes(row.limit)], ["peak", showBytes(row.peak)],
    ]), 300, "Memory of each device over time: arrows pan, plus and minus zoom"),
    links: make("links", new StepContent(plan, colors, flights.rows, (row, bytes) => [
      ["in flight", showBytes(bytes)],
    ]), 300, "Bytes in flight over time: arrows pan, plus and minus zoom"),
  };
  startSearch(gantt, panels.gantt);
  document.getElementById("whole").addEventListener("click", () => view.whole());
  const allRows = document.getElementById("all-rows");
  allRows.checked = gantt.isFitting;
  allRows.parentElement.hidden = gantt.fits;
  allRows.addEventListener("change", () => {
    gantt.fitRows(allRows.checked);
    panels.gantt.fit();
  });
  document.getElementById("show-path").addEventListener("change", (event) => {
    gantt.showPath(event.target.checked);
    panels.gantt.invalidate();
  });
  return { view, gantt, panels };
}

/** For whoever drives the page by script: where an action is drawn, and what part is shown. */
function scriptAccess(plan, { view, gantt, panels }) {
  return {
    rectangleOf(name, lane) {
      for (const row of gantt.rows) {
        if (lane !== undefined && row.lane.number !== lane) continue;
        for (let place = 0; place < row.lane.kind.length; place++) {
          if (actionName(plan, row.lane, place) !== name) continue;
          const box = gantt.boxOf(panels.gantt, row.lane.number, place);
          const corner = panels.gantt.canvas.getBoundingClientRect();
          return {
            left: corner.left + box.x,
            top: corner.top + box.y,
            width: box.width,
            height: box.height,
            lane: row.lane.number,
            start: row.lane.start[place],
            end: row.lane.end[place],
            color: gantt.fillOf(row.lane, place),
          };
        }
      }
      return null;
    },
    view: () => ({ from: view.from, to: view.to, total: view.total }),
  };
}

const plan = decodeDocument(JSON.parse(document.getElementById("content").textContent));
const colors = new Colors(plan.colors);
fillHead(plan);
const charts = startCharts(plan, colors);
fillLegend(plan);
fillTables(plan);
startTheme(colors, () => Object.values(charts.panels).forEach((panel) => panel.invalidate()));
globalThis.dapplePlan = scriptAccess(plan, charts);
document.documentElement.dataset.ready = "true";
