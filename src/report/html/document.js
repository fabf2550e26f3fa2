"use strict";

// What the page shows, decoded from its JSON; src/report/page_content.h says how it is encoded.
// Times are nanoseconds from the start of the iteration.

const Stream = { compute: 0, sendForward: 1, sendBackward: 2, collective: 3 };
const STREAM_WORDS = ["compute", "send forward", "send backward", "all-reduce"];

function runningSums(differences) {
  const sums = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i++) sums[i] = sum += differences[i];
  return sums;
}

/** Sums of the differences within each kind. */
function runningSumsByKind(differences, kinds) {
  const sums = new Float64Array(differences.length);
  const last = [];
  for (let i = 0; i < differences.length; i++) {
    const kind = kinds[i];
    sums[i] = last[kind] = (last[kind] || 0) + differences[i];
  }
  return sums;
}

/** A lane's actions as columns, and the parts in which they are drawn: {stream, items}. */
function decodeLane(encoded, number, kinds) {
  const start = runningSums(encoded.start);
  const length = runningSumsByKind(encoded.length, encoded.kind);
  const lane = {
    number,
    title: `${encoded.title[0].toUpperCase()}${encoded.title.slice(1)}`,
    home: encoded.home,
    holds: encoded.holds,
    devices: encoded.devices,
    deviceCount: encoded.deviceCount,
    kind: encoded.kind,
    stage: runningSums(encoded.stage),
    index: encoded.index,
    row: encoded.row,
    start,
    end: start.map((moment, i) => moment + length[i]),
    bytes: runningSumsByKind(encoded.bytes, encoded.kind),
    parts: [],
  };
  const byStream = [[], [], [], []];
  for (let i = 0; i < start.length; i++) {
    const rows = byStream[kinds[lane.kind[i]].stream];
    (rows[lane.row[i]] ||= []).push(i);
  }
  byStream.forEach((rows, stream) => rows.forEach((items) => lane.parts.push({ stream, items })));
  lane.partOf = new Int32Array(start.length);
  lane.parts.forEach(({ items }, part) => items.forEach((place) => { lane.partOf[place] = part; }));
  return lane;
}

function decodeDocument(content) {
  const lanes = content.lanes.map((lane, number) => decodeLane(lane, number, content.kinds));
  const memory = content.memory.map((row) => ({
    ...row, time: runningSums(row.time), held: runningSums(row.held),
  }));
  const segments = [];
  const flat = content.path.segments;
  for (let i = 0; i < flat.length; i += 4) {
    segments.push({ lane: flat[i], place: flat[i + 1], begin: flat[i + 2], end: flat[i + 3] });
  }
  return { ...content, lanes, memory, segments };
}

/** "2F0": what an action is called in the schedule's text form. */
function actionName(document, lane, place) {
  const kind = document.kinds[lane.kind[place]];
  return `${lane.stage[place]}${kind.name}${kind.numbered ? lane.index[place] : ""}`;
}

/** "forward of micro-batch 0, stage 2". */
function actionWords(document, lane, place) {
  const kind = document.kinds[lane.kind[place]];
  const counted = kind.name === "REDUCE_TIED" ? "tie"
    : kind.stream === Stream.collective ? "bucket" : "micro-batch";
  const what = `${counted} ${lane.index[place]}`;
  return `${kind.words}${kind.numbered ? ` of ${what}` : ""}, stage ${lane.stage[place]}`;
}

const QUERY = /^(?:stage\s*)?(\d*)\s*([a-z_]*)\s*(\d*)$/i;

/** Whether an action is meant by "2F0", "F3", "2", "send_f"; null for a text that means nothing. */
function matcherOf(document, query) {
  const parts = QUERY.exec(query.trim());
  if (!parts || query.trim() === "") return null;
  const [, stage, name, index] = parts;
  const kinds = document.kinds.map((kind) => name === "" || kind.name === name.toUpperCase());
  if (!kinds.some(Boolean)) return null;
  return (lane, place) => kinds[lane.kind[place]]
    && (stage === "" || lane.stage[place] === Number(stage))
    && (index === "" || (document.kinds[lane.kind[place]].numbered
      && lane.index[place] === Number(index)));
}

const TIME_UNITS = [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"]];

/** The unit in which a time has one to three digits before the point. */
function timeUnit(ns) {
  return [...TIME_UNITS].reverse().find(([size]) => Math.abs(ns) >= 0.99995 * size) || TIME_UNITS[0];
}

/** Four significant digits and three decimals at most, as the program shows times, in the unit that
 *  suits `whole`: times that are compared have one unit. */
function showTime(ns, whole = ns) {
  const [size, unit] = timeUnit(whole);
  const value = ns / size;
  if (ns !== 0 && Math.abs(value) < 0.0005) return `<0.001 ${unit}`;
  const decimals = Math.min(3, Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value) || 1))));
  const shown = size === 1 ? String(ns) : value.toFixed(decimals);
  return `${Math.abs(value) >= 1e4 ? Number(shown).toLocaleString("en-US") : shown} ${unit}`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Three significant digits, binary units. */
function showBytes(bytes) {
  let unit = 0;
  let size = bytes;
  while (Math.abs(size) >= 999.5 && unit + 1 < BYTE_UNITS.length) {
    size /= 1024;
    unit++;
  }
  return `${unit === 0 ? size : Number(size.toPrecision(3))} ${BYTE_UNITS[unit]}`;
}

function showPercent(fraction) {
  return `${(100 * fraction).toFixed(1)} %`;
}

/** First position of an ascending column whose value is above the limit. */
function firstAbove(length, valueAt, limit) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (valueAt(middle) > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** An element with attributes and children; texts become text nodes, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = globalThis.document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") {
      for (const [property, setting] of Object.entries(value)) {
        made.style.setProperty(property, setting);
      }
    } else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
