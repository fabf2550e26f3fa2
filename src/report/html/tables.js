// Tables, bars and boxes beside the charts. All texts go in as text.

function tone(number, stage) { return `var(--tone-${number}-${stage % HUES})`; }
const HUES = 8;

function stageChip(stage) {
  return element("span", {
    class: "chip", style: { background: tone(2, stage), color: "#fff" },
  }, String(stage));
}

/** A table whose columns are {name, kind}; on a narrow page each row is a list of names and values.
 *  Cells are texts or elements. */
function gridTable(columns, rows) {
  const head = element("tr", {}, ...columns.map(({ name, kind }) =>
    element("th", { class: kind, scope: "col" }, name)));
  const cellOf = (cell, { kind, name }) => element("td", { class: kind, "data-name": name },
    ...(kind === "name" ? breakable(cell) : [cell]));
  return element("table", { class: "grid" }, element("thead", {}, head), element("tbody", {},
    ...rows.map((cells) => element("tr", {}, ...cells.map((cell, i) => cellOf(cell, columns[i]))))));
}

/** A name that may go on in the next line where its parts meet: before "..". It is one child, as
 *  cells are laid out by their children on a narrow page. */
function breakable(name) {
  const [first, ...others] = name.split(/(?=\.\.)/);
  return [element("span", {}, first, ...others.flatMap((part) => [element("wbr"), part]))];
}

function memoryCell(stage, number) {
  if (!stage.memory) return "-";
  const fraction = stage.limitBytes ? stage.peakBytes / stage.limitBytes : 0;
  return element("span", fraction > 1 ? { class: "bad" } : {}, stage.memory,
    element("span", { class: "share" }, `${(100 * fraction).toFixed(0)} %`),
    element("span", { class: "meter" }, element("i", {
      style: {
        width: `${Math.min(100, 100 * fraction)}%`,
        background: fraction > 1 ? "var(--bad)" : tone(1, number),
      },
    })));
}

/** What decides whether a plan runs stands first: where, and whether it fits. */
function stagesTable(document) {
  const number = (name) => ({ name, kind: "number" });
  const columns = [
    { name: "stage", kind: "" }, { name: "layers", kind: "name" }, { name: "devices", kind: "name" },
    number("memory of limit"), number("samples"), number("forward"), number("backward"),
    number("depth"), number("sends on"), number("transfer"), number("all-reduce"), number("step"),
  ];
  return gridTable(columns, document.stages.map((stage, i) => [
    stageChip(i),
    `${stage.layerCount}: ${stage.layers}`,
    `${stage.deviceCount}: ${stage.devices}${stage.parallelism ? `; ${stage.parallelism}` : ""}`,
    memoryCell(stage, i),
    stage.samples,
    stage.forward,
    stage.recomputes ? `${stage.backward} (recomputes)` : stage.backward,
    String(stage.depth),
    stage.sends, stage.transfer, stage.allReduce, stage.step,
  ]));
}

/** Servers as boxes, their devices in them; as many to a line as make the boxes near square. */
function topologyBoxes(document) {
  const most = document.servers.reduce((n, server) => Math.max(n, server.stages.length), 1);
  const perRow = most <= 4 ? most : most <= 8 ? 4 : 8;
  return document.servers.map((server) => element("div", { class: "server" },
    element("h3", {}, element("span", { title: server.name }, server.name),
      element("span", { class: "quiet", title: server.kind }, server.kind)),
    element("div", { class: "devices", style: { "--per-row": String(perRow) } },
      ...server.stages.map((stages, number) => {
        const isIdle = stages.length === 0;
        const what = isIdle ? "idle" : `stage${stages.length > 1 ? "s" : ""} ${stages.join(", ")}`;
        return element("div", {
          class: isIdle ? "device idle" : "device",
          title: `${server.name}:${number}, ${what}`,
          "aria-label": `${server.name}:${number}, ${what}`,
          style: isIdle ? {} : { background: tone(2, stages[0]), color: "#fff" },
        }, isIdle ? "–" : stages.length > 3 ? `${stages[0]}…` : stages.join(","));
      }))));
}

/** One bar of parts, and a legend with lengths and shares. `parts`: {name, ns, color}. */
function stackedParts(parts, total) {
  const shown = parts.filter((part) => part.ns > 0);
  const bar = element("div", { class: "stack" }, ...shown.map((part) => element("i", {
    style: { width: `${(100 * part.ns) / total}%`, background: part.color },
    title: `${part.name} ${showTime(part.ns, total)}`,
  })));
  const lines = shown.flatMap((part) => [
    element("span", { class: "swatch", style: { background: part.color } }),
    element("span", {}, part.name),
    element("span", { class: "number quiet" }, part.time || showTime(part.ns, total)),
    element("span", { class: "number" }, showPercent(part.ns / total)),
  ]);
  return [bar, element("div", { class: "parts" }, ...lines)];
}

function idleParts(document, idle) {
  return document.statistics.causes.map((name, i) => ({
    name, ns: idle[i], color: `var(--idle-${i})`,
  }));
}

/** Kinds on the path in the colours of the first stage, as in the legend. */
function pathParts(document) {
  const neutral = "var(--idle-1)";
  return document.path.shares.map((share) => {
    const kind = document.kinds.find((candidate) => candidate.name === share.kind);
    const isTransfer = kind && kind.stream !== Stream.compute;
    const color = !kind ? neutral : isTransfer ? tone(kind.tone, 1) : tone(kind.tone, 0);
    return { name: share.words, ns: share.ns, color };
  });
}

function deviceTimeParts(document) {
  const { statistics, lanes } = document;
  const busy = statistics.lanes.reduce((sum, lane, i) => sum + lane.busy * lanes[i].deviceCount, 0);
  const devices = lanes.reduce((sum, lane) => sum + lane.deviceCount, 0);
  // Means over the devices: their sum would be no time that anybody waits.
  const mean = (part) => ({ ...part, time: showTime(Math.round(part.ns / devices), document.iteration) });
  const parts = [{ name: "computing", ns: busy, color: "var(--busy)" },
    ...idleParts(document, statistics.idleDeviceTime)].map(mean);
  return { parts, total: document.iteration * devices };
}

function lanesTable(document) {
  const { statistics, lanes, iteration } = document;
  const columns = [
    { name: "stage", kind: "" }, { name: "devices", kind: "name" }, { name: "computes", kind: "" },
    { name: "", kind: "bar" }, { name: "mostly idle", kind: "" },
    { name: "communicates", kind: "number" }, { name: "not hidden", kind: "number" },
  ];
  return gridTable(columns, statistics.lanes.map((lane, number) => {
    const parts = [{ name: "computing", ns: lane.busy, color: "var(--busy)" },
      ...idleParts(document, lane.idle)];
    const [bar] = stackedParts(parts, iteration);
    bar.classList.add("small");
    const worst = parts.slice(1).reduce((most, part) => (part.ns > most.ns ? part : most));
    const isSlow = statistics.stragglers.includes(number);
    return [
      element("span", { class: "chips" }, ...lanes[number].holds.map(stageChip)),
      lanes[number].devices,
      element("span", {}, showPercent(lane.busy / iteration),
        ...(isSlow ? [element("span", { class: "bad" }, " straggler")] : [])),
      bar,
      worst.ns > 0 ? `${worst.name} ${showTime(worst.ns, iteration)}` : "-",
      showTime(lane.communicating, iteration),
      showTime(lane.exposed, iteration),
    ];
  }));
}

/** A table of the schedule families, or the forms of parallelism, that were considered. */
function consideredTable(name, records) {
  const columns = [
    { name, kind: "" }, { name: "stages, micro-batches", kind: "name" },
    { name: "best found", kind: "number" }, { name: "none below", kind: "number" },
    { name: "why", kind: "reason" },
  ];
  return gridTable(columns, records.map((record) => [
    record.chosen ? element("b", {}, record.name) : record.name,
    record.shape || "-", record.best, record.bound, record.reason,
  ]));
}

/** Bars are drawn up to so many times this plan's: one outlier must not make all others alike. */
const MOST_TIMES = 3;

function baselineScale(document) {
  const longest = document.baselines.reduce((most, baseline) => Math.max(most, baseline.ns),
    document.planIteration);
  const most = MOST_TIMES * document.planIteration;
  return { full: Math.min(longest, most), isCut: longest > most };
}

function baselineBars(document, { full }) {
  const row = (name, shape, ns, kind, reason) => element("div", { class: "row" },
    element("span", {}, element("b", {}, name), element("span", { class: "quiet" }, ` ${shape}`)),
    element("div", { class: `track ${kind}${ns > full ? " torn" : ""}` },
      element("i", { style: { width: `${Math.min(100, (100 * ns) / full)}%` } })),
    element("span", {}, ...reason));
  const ours = row("this plan", document.title.shape, document.planIteration, "ours",
    [element("b", {}, showTime(document.planIteration))]);
  const others = document.baselines.map((baseline) => row(baseline.name, baseline.shape,
    baseline.ns, baseline.fits ? "" : "lacks", [
      element("b", {}, baseline.iteration), ` ${baseline.factor}`,
      ...(baseline.reason === "-" ? []
        : [element("span", { class: baseline.fits ? "reason quiet" : "reason bad" },
          baseline.fits ? `loses by ${baseline.reason}` : baseline.reason)]),
    ]));
  return element("div", { class: "bars" }, ours, ...others);
}
