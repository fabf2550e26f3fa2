// What the charts show: the timeline of every lane, the memory of every device, bytes in flight.

const GANTT_HEIGHT = 560;
const FAINT = 0.3;  // opacity of what is not looked for

/** Heights of a lane's parts, smaller the more lanes there are. */
function laneSizes(lanes) {
  if (lanes <= 4) return { compute: 34, thin: 7, gap: 2, between: 18 };
  if (lanes <= 12) return { compute: 24, thin: 5, gap: 1, between: 12 };
  if (lanes <= 48) return { compute: 16, thin: 4, gap: 1, between: 8 };
  return { compute: 11, thin: 3, gap: 1, between: 4 };
}

/** So that all lanes fit, computations alone where they must. */
function fittingSizes(lanes) {
  const full = laneSizes(lanes);
  const room = Math.max(Math.floor(GANTT_HEIGHT / Math.max(lanes, 1)), 2);
  if (room >= full.compute + 3 * (full.thin + full.gap) + full.between) return full;
  return { compute: Math.max(room - 1, 1.5), thin: 0, gap: 0, between: room > 2 ? 1 : 0.5 };
}

class GanttContent {
  constructor(document, colors) {
    this.document = document;
    this.colors = colors;
    this.marks = null;     // per lane, 1 where an action is found by the search
    this.pathMarks = null; // likewise on the critical path
    this.selected = null;  // {lane, place}
    this.fitRows(false);
    this.fits = this.rows.at(-1).top + this.rows.at(-1).height + PADDING <= GANTT_HEIGHT;
    this.fitRows(document.lanes.length > 48);
  }

  /** Lays the lanes out so that all are seen, or each in full. */
  fitRows(isFitting) {
    const { lanes } = this.document;
    const sizes = isFitting ? fittingSizes(lanes.length) : laneSizes(lanes.length);
    this.isFitting = isFitting;
    this.rows = stackRows(lanes.map((lane) => this.layout(lane, sizes)));
  }

  layout(lane, sizes) {
    let y = sizes.between / 2;
    const parts = lane.parts.map(({ stream, items }) => {
      const height = stream === Stream.compute ? sizes.compute : sizes.thin;
      const part = { items, stream, y, height };
      y += height + sizes.gap;
      return part;
    });
    return { lane, parts, height: y - sizes.gap + sizes.between / 2 };
  }

  get emphasis() { return this.marks || this.pathMarks; }

  /** Of rows lower than a line of text only every so many have one. */
  drawLabel(panel, row) {
    const every = Math.ceil(13 / row.height);
    if (row.lane.number % every !== 0) return;
    const shown = { ...row, height: Math.max(row.height, 13) };
    if (every === 1) panel.drawLabelMark(shown, row.lane.home);
    panel.drawLabelText(shown, row.lane.title, row.lane.devices);
  }

  drawRow(panel, row) {
    const y = panel.yOf(row);
    if (row.height > 12) {
      panel.context.fillStyle = this.colors.css("--grid");
      panel.context.fillRect(panel.labelWidth, Math.round(y + row.height) - 1, panel.plotWidth, 1);
    }
    for (const part of row.parts) {
      if (part.height > 0) this.drawPart(panel, row.lane, part, y + part.y);
    }
  }

  /** Bars of one part; those below a pixel are merged into columns, as dark as they are busy. */
  drawPart(panel, lane, part, y) {
    const { context, view, scale } = panel;
    const { items, height } = part;
    const left = panel.xOf(view.from);
    const first = firstAbove(items.length, (i) => lane.end[items[i]], view.from);
    const marks = this.emphasis && this.emphasis[lane.number];
    const column = { x: -1, covered: 0, widest: 0, place: -1, marked: false };
    const flush = () => {
      if (column.covered > 0) {
        context.globalAlpha = (marks && !column.marked ? FAINT : 1)
          * Math.max(0.25, Math.min(1, column.covered));
        context.fillStyle = this.fillOf(lane, column.place);
        context.fillRect(column.x, y, column.marked && marks ? 2 : 1, height);
      }
      Object.assign(column, { covered: 0, widest: 0, marked: false });
    };
    for (let i = first; i < items.length; i++) {
      const place = items[i];
      if (lane.start[place] > view.to) break;
      const x = left + (lane.start[place] - view.from) * scale;
      const width = (lane.end[place] - lane.start[place]) * scale;
      const isMarked = !marks || marks[place] === 1;
      if (width >= 1.5) {
        flush();
        context.globalAlpha = isMarked ? 1 : FAINT;
        this.drawBar(panel, lane, place, { x, y, width, height });
        continue;
      }
      if (Math.floor(x) !== column.x) flush();
      column.x = Math.floor(x);
      column.covered += Math.max(width, 0.02);
      if (width >= column.widest && (isMarked || !column.marked)) {
        column.widest = width;
        column.place = place;
      }
      column.marked ||= isMarked;
    }
    flush();
    context.globalAlpha = 1;
  }

  fillOf(lane, place) {
    return this.colors.fill(this.document.kinds[lane.kind[place]].tone, lane.stage[place]);
  }

  drawBar(panel, lane, place, box) {
    const { context } = panel;
    const { x, y, width, height } = box;
    const kind = this.document.kinds[lane.kind[place]];
    context.fillStyle = this.fillOf(lane, place);
    context.fillRect(x, y, Math.max(width - (width > 4 ? 1 : 0.4), 1), height);
    if (height < 11 || width < 9) return;
    context.font = `${height >= 20 ? 12 : 10}px ${this.colors.font}`;
    const name = actionName(this.document, lane, place);
    const texts = [name, kind.numbered ? String(lane.index[place]) : ""];
    // A bar that began before what is shown has its text where it is seen.
    const begin = Math.max(x, panel.labelWidth);
    const room = Math.min(x + width, panel.labelWidth + panel.plotWidth) - begin;
    const text = texts.find((t) => context.measureText(t).width + 7 <= room);
    if (!text) return;
    context.fillStyle = this.colors.textOn(kind.tone);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, begin + room / 2, y + height / 2 + 0.5);
  }

  /** The box of an action on the panel's canvas, whether it is in view or not. */
  boxOf(panel, number, place) {
    const row = this.rows[number];
    const part = row.parts[row.lane.partOf[place]];
    return {
      x: panel.xOf(row.lane.start[place]),
      y: panel.yOf(row) + part.y,
      width: (row.lane.end[place] - row.lane.start[place]) * panel.scale,
      height: part.height,
    };
  }

  drawOver(panel) {
    if (this.pathMarks && !this.marks) this.drawPath(panel);
    if (!this.selected) return;
    const box = this.boxOf(panel, this.selected.lane, this.selected.place);
    panel.context.strokeStyle = this.colors.css("--ink");
    panel.context.lineWidth = 2;
    panel.context.strokeRect(box.x - 1, box.y - 1, Math.max(box.width, 2) + 1, box.height + 2);
  }

  /** A line along the foot of every segment, where it hides no text, from lane to lane. */
  drawPath(panel) {
    const { context, view } = panel;
    const { segments, lanes } = this.document;
    const first = firstAbove(segments.length, (i) => segments[i].end, view.from);
    context.strokeStyle = this.colors.css("--ink");
    context.lineWidth = this.isFitting ? 1.5 : 3;
    context.lineJoin = "round";
    context.beginPath();
    let isDown = false;
    for (let i = Math.max(first - 1, 0); i < segments.length; i++) {
      const { lane, place, begin, end } = segments[i];
      if (begin > view.to) break;
      if (lane < 0) continue;
      const box = this.boxOf(panel, lanes[lane].number, place);
      const y = box.y + Math.max(box.height - 2, box.height / 2);
      if (isDown) context.lineTo(panel.xOf(begin), y);
      else context.moveTo(panel.xOf(begin), y);
      context.lineTo(panel.xOf(end), y);
      isDown = true;
    }
    context.stroke();
  }

  /** The action nearest to a point, up to three pixels away in its row. */
  actionAt(panel, row, x, y) {
    const inside = y + panel.scroller.scrollTop - row.top;
    const part = row.parts.find((p) => p.height > 0 && inside >= p.y - 0.5
      && inside <= p.y + p.height + 0.5);
    if (!part) return null;
    const { lane } = row;
    const moment = panel.momentAt(x);
    const slack = 3 / panel.scale;
    const place = firstAbove(part.items.length, (i) => lane.end[part.items[i]], moment);
    const near = [place, place - 1].filter((i) => i >= 0 && i < part.items.length)
      .map((i) => part.items[i])
      .map((item) => ({
        item, away: Math.max(lane.start[item] - moment, moment - lane.end[item], 0),
      }))
      .filter(({ away }) => away <= slack)
      .sort((a, b) => a.away - b.away)[0];
    return near ? near.item : null;
  }

  describe(panel, row, x, y) {
    const place = this.actionAt(panel, row, x, y);
    return place === null ? null : this.describeAction(row.lane, place);
  }

  describeAction(lane, place) {
    const length = lane.end[place] - lane.start[place];
    const lines = [
      ["begins", showTime(lane.start[place], lane.end[place])],
      ["takes", showTime(length)],
      ["ends", showTime(lane.end[place])],
      ["on", `${lane.deviceCount} device${lane.deviceCount === 1 ? "" : "s"}: ${lane.devices}`],
    ];
    if (lane.bytes[place] > 0) {
      lines.push(["bytes", showBytes(lane.bytes[place])]);
      if (length > 0) lines.push(["rate", `${showBytes((lane.bytes[place] / length) * 1e9)}/s`]);
    }
    return {
      title: actionName(this.document, lane, place),
      note: actionWords(this.document, lane, place),
      lines,
      begin: lane.start[place],
      end: lane.end[place],
    };
  }

  /** Goes to the action before or behind in a lane, or to the lane above or below. */
  moveCursor(panel, rows, columns) {
    const { lanes } = this.document;
    const { view } = panel;
    if (!this.selected) {
      const lane = (panel.visibleRows()[0] || this.rows[0]).lane;
      this.select(panel, lane.number, this.computedAt(lane, view.from));
      return;
    }
    const number = Math.min(Math.max(this.selected.lane + rows, 0), lanes.length - 1);
    const lane = lanes[number];
    if (rows !== 0) {
      const before = lanes[this.selected.lane];
      this.select(panel, number, this.computedAt(lane, before.start[this.selected.place]));
      return;
    }
    const { items } = lane.parts[lane.partOf[this.selected.place]];
    const next = items.indexOf(this.selected.place) + columns;
    if (next >= 0 && next < items.length) this.select(panel, number, items[next]);
  }

  /** The computation of a lane that runs at a moment, or the next one. */
  computedAt(lane, moment) {
    const { items } = lane.parts[0];
    const i = firstAbove(items.length, (at) => lane.end[items[at]], moment);
    return items[Math.min(i, items.length - 1)];
  }

  /** Selects an action, brings it into view, and says what it is. */
  select(panel, number, place) {
    this.selected = { lane: number, place };
    const lane = this.document.lanes[number];
    const { view } = panel;
    if (lane.start[place] < view.from || lane.end[place] > view.to) {
      const length = lane.end[place] - lane.start[place];
      view.show(lane.start[place] + length / 2 - view.span / 2, Math.max(view.span, length * 1.2));
    }
    const row = this.rows[number];
    const top = panel.scroller.scrollTop;
    if (row.top < top) panel.scroller.scrollTop = row.top;
    if (row.top + row.height > top + panel.height) {
      panel.scroller.scrollTop = row.top + row.height - panel.height;
    }
    panel.invalidate();
    const found = this.describeAction(lane, place);
    panel.tell(() => this.placeOfSelected(panel, found));
    panel.tooltip.announce(found);
  }

  /** Where the tooltip of the selected action belongs; found is null where that is out of view. */
  placeOfSelected(panel, found) {
    const box = this.boxOf(panel, this.selected.lane, this.selected.place);
    const corner = panel.canvas.getBoundingClientRect();
    const isInView = box.x + box.width >= panel.labelWidth && box.x <= panel.width
      && box.y + box.height > 0 && box.y < panel.height;
    return {
      found: isInView ? found : null,
      x: corner.left + Math.max(box.x, panel.labelWidth) + 4,
      y: corner.top + box.y + box.height,
    };
  }

  /** Marks what a query finds; how many there are, or null for no query. */
  search(query) {
    const matches = matcherOf(this.document, query);
    this.marks = null;
    this.found = [];
    if (!matches) return query.trim() === "" ? null : 0;
    this.marks = this.document.lanes.map((lane) => {
      const marks = new Uint8Array(lane.kind.length);
      for (let place = 0; place < marks.length; place++) {
        if (!matches(lane, place)) continue;
        marks[place] = 1;
        this.found.push({ lane: lane.number, place, start: lane.start[place] });
      }
      return marks;
    });
    this.found.sort((a, b) => a.start - b.start);
    return this.found.length;
  }

  showPath(isShown) {
    this.pathMarks = null;
    if (!isShown) return;
    this.pathMarks = this.document.lanes.map((lane) => new Uint8Array(lane.kind.length));
    for (const { lane, place } of this.document.segments) {
      if (lane >= 0) this.pathMarks[lane][place] = 1;
    }
  }
}

/** Rows of values that change in steps, as areas; {lane, devices, time, value, top}. */
class StepContent {
  constructor(document, colors, rows, words) {
    this.document = document;
    this.colors = colors;
    this.words = words;  // (row, value) -> lines of the tooltip
    const height = rows.length <= 4 ? 56 : rows.length <= 12 ? 40 : rows.length <= 48 ? 24 : 15;
    this.rows = stackRows(rows.map((row) => ({ ...row, height })));
  }

  drawLabel(panel, row) {
    panel.drawLabelMark(row, this.document.lanes[row.lane].home);
    panel.drawLabelText(row, this.document.lanes[row.lane].title, row.devices);
  }

  drawRow(panel, row) {
    const { context, view } = panel;
    const base = panel.yOf(row) + row.height - 1;
    const room = row.height - (row.height > 20 ? 6 : 3);
    const { home } = this.document.lanes[row.lane];
    context.fillStyle = this.colors.css("--grid");
    context.fillRect(panel.labelWidth, base, panel.plotWidth, 1);
    const heightOf = (value) => (value / row.full) * room;
    const first = Math.max(
      firstAbove(row.time.length, (i) => row.time[i], view.from) - 1, 0);
    // Of several values within a pixel the largest is drawn.
    let column = { x: -1, value: 0 };
    for (let i = first; i < row.time.length && row.time[i] <= view.to; i++) {
      const x = Math.round(Math.max(panel.xOf(row.time[i]), panel.labelWidth));
      const until = i + 1 < row.time.length ? row.time[i + 1] : view.total;
      const width = Math.round(Math.min(panel.xOf(until), panel.labelWidth + panel.plotWidth)) - x;
      const value = row.value[i];
      if (width < 1) {
        const isSame = column.x === x;
        column = { x, value: isSame ? Math.max(column.value, value) : value };
      }
      const drawn = width < 1 ? column : { x, value };
      context.fillStyle = row.limit && drawn.value > row.limit ? this.colors.css("--bad")
        : this.colors.fill(1, home);
      context.fillRect(drawn.x, base - heightOf(drawn.value), Math.max(width, 1),
        heightOf(drawn.value));
    }
    if (!row.limit) return;
    context.fillStyle = this.colors.css("--bad");
    const y = Math.round(base - heightOf(row.limit));
    for (let x = panel.labelWidth; x < panel.labelWidth + panel.plotWidth; x += 7) {
      context.fillRect(x, y, 4, 1);
    }
  }

  describe(panel, row, x) {
    const moment = panel.momentAt(x);
    const i = firstAbove(row.time.length, (at) => row.time[at], moment) - 1;
    if (i < 0 || moment > panel.view.total) return null;
    const until = i + 1 < row.time.length ? row.time[i + 1] : panel.view.total;
    return {
      title: this.document.lanes[row.lane].title,
      note: row.devices,
      lines: [...this.words(row, row.value[i]), ["from", showTime(row.time[i], until)],
        ["until", showTime(until)]],
    };
  }
}

function memoryRows(document) {
  return document.memory.map((row) => {
    const peak = row.held.reduce((most, held) => Math.max(most, held), 0);
    return {
      lane: row.lane, devices: row.devices, time: row.time, value: row.held,
      limit: row.limit, peak, full: Math.max(row.limit, peak, 1),
    };
  });
}

/** What each lane sends and reduces at any moment; all rows in one scale. */
function flightRows(document) {
  const rows = document.lanes.map((lane) => {
    const changes = [];
    for (let i = 0; i < lane.kind.length; i++) {
      if (document.kinds[lane.kind[i]].stream === Stream.compute || lane.bytes[i] === 0) continue;
      changes.push([lane.start[i], lane.bytes[i]], [lane.end[i], -lane.bytes[i]]);
    }
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const time = [0];
    const value = [0];
    for (const [moment, bytes] of changes) {
      if (time.at(-1) !== moment) {
        time.push(moment);
        value.push(value.at(-1));
      }
      value[value.length - 1] += bytes;
    }
    return { lane: lane.number, devices: lane.devices, time, value };
  });
  const full = rows.reduce((most, row) => row.value.reduce((a, b) => Math.max(a, b), most), 0);
  return { rows: rows.map((row) => ({ ...row, full: Math.max(full, 1) })), full };
}
