// Charts over time that are zoomed together. A TimeView is what part of the iteration they show; a
// TimePanel is one chart: rows with labels, an axis, and the ways to move. What a row shows is its
// content's business (panels.js).

const LABELS = { wide: 168, narrow: 92, wideFrom: 560 };  // width of labels, by that of the panel
const AXIS_HEIGHT = 24;
const PADDING = 4;  // below the last row
const RIGHT_MARGIN = 14;

class TimeView {
  constructor(total) {
    this.total = Math.max(total, 1);
    this.from = 0;
    this.to = this.total;
    this.cursor = null;  // the moment under the pointer
    this.listeners = [];
  }

  get span() { return this.to - this.from; }

  changed() { for (const listener of this.listeners) listener(); }

  /** Shows [from, from + span), within the iteration. */
  show(from, span) {
    const least = Math.min(this.total, Math.max(20, this.total / 1e7));
    span = Math.min(Math.max(span, least), this.total);
    this.from = Math.min(Math.max(from, 0), this.total - span);
    this.to = this.from + span;
    this.changed();
  }

  zoom(factor, around = this.from + this.span / 2) {
    const span = Math.min(this.span * factor, this.total);
    this.show(around - (around - this.from) * (span / this.span), span);
  }

  pan(share) { this.show(this.from + share * this.span, this.span); }
  whole() { this.show(0, this.total); }

  setCursor(moment) {
    if (moment === this.cursor) return;
    this.cursor = moment;
    this.changed();
  }
}

/** Round moments, 1, 2 or 5 times a power of ten apart, about `wanted` of them. */
function ticksOf(view, wanted) {
  const rough = view.span / Math.max(wanted, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((length) => length >= rough);
  const ticks = [];
  for (let i = Math.ceil(view.from / step); i * step <= view.to; i++) ticks.push(i * step);
  return { ticks, step };
}

/** A moment in the unit of the step between ticks, with the decimals that it needs. */
function tickText(moment, step) {
  const [size, unit] = [...TIME_UNITS].reverse().find(([s]) => step >= s * 0.999)
    || TIME_UNITS[0];
  // A step of 200 ms far out reads better as 1.2 s.
  const [bigger, biggerUnit] = moment >= 1e4 * size
    ? TIME_UNITS[TIME_UNITS.findIndex(([s]) => s === size) + 1] || [size, unit] : [size, unit];
  const decimals = Math.max(0, Math.ceil(Math.log10(bigger / step) - 1e-9));
  return `${(moment / bigger).toFixed(decimals)} ${biggerUnit}`;
}

/** A title and what may stand for it in less room: without its first word, then fewer of its
 *  numbers, each of them whole. */
function titlesFor(title) {
  const shorter = [title, title.replace(/^Stages? /, "")];
  for (let text = shorter[1]; text.includes(",");) {
    text = text.slice(0, text.lastIndexOf(","));
    shorter.push(`${text},…`);
  }
  return shorter;
}

/** Rows of a chart: {top, height, ...}, one below the other. */
function stackRows(rows) {
  let top = 0;
  for (const row of rows) {
    row.top = top;
    top += row.height;
  }
  return rows;
}

class TimePanel {
  /**
   * content: rows, each with top and height; drawRow(panel, row), drawLabel(panel, row),
   * drawOver(panel) if any; describe(row, moment, panel, x, y) -> {lines..., place} or null for the
   * tooltip; moveCursor(row and column steps) if it has things to go through.
   */
  constructor(host, view, content, options) {
    Object.assign(this, { host, view, content });
    this.maxHeight = options.maxHeight;
    this.tooltip = options.tooltip;
    this.colors = options.colors;
    this.canvas = element("canvas");
    this.extent = element("div", { class: "extent" });
    this.scroller = element("div", {
      class: "scroller", tabindex: "0", role: "application", "aria-label": options.label,
    }, this.canvas, this.extent);
    this.axis = element("canvas", { class: "axis" });
    host.append(this.scroller, this.axis);
    this.context = this.canvas.getContext("2d");
    view.listeners.push(() => {
      this.invalidate();
      this.follow();
    });
    this.listen();
    new ResizeObserver(() => this.fit()).observe(host);
    this.fit();
  }

  get contentHeight() {
    const last = this.content.rows.at(-1);
    return last ? last.top + last.height + PADDING : 0;
  }

  get labelWidth() { return this.width < LABELS.wideFrom ? LABELS.narrow : LABELS.wide; }
  get plotWidth() { return Math.max(this.width - this.labelWidth - RIGHT_MARGIN, 20); }
  get scale() { return this.plotWidth / this.view.span; }  // pixels per nanosecond
  xOf(moment) { return this.labelWidth + (moment - this.view.from) * this.scale; }
  momentAt(x) { return this.view.from + (x - this.labelWidth) / this.scale; }

  /** Takes the size that there is; content that has another height than before asks for it too. */
  fit() {
    const ratio = globalThis.devicePixelRatio || 1;
    this.height = Math.min(Math.max(this.contentHeight, 40), this.maxHeight);
    this.scroller.style.height = `${this.height}px`;
    this.scroller.style.overflowY = this.contentHeight > this.height ? "auto" : "hidden";
    this.extent.style.height = `${this.contentHeight}px`;
    this.width = this.scroller.clientWidth;
    const size = `${this.width} ${this.height} ${ratio}`;
    this.invalidate();
    if (size === this.size) return;
    this.size = size;
    for (const [canvas, height] of [[this.canvas, this.height], [this.axis, AXIS_HEIGHT]]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${height}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  }

  invalidate() {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      this.draw();
    });
  }

  /** Where a row is on the canvas. */
  yOf(row) { return row.top - this.scroller.scrollTop; }

  visibleRows() {
    const top = this.scroller.scrollTop;
    return this.content.rows.filter((row) => row.top + row.height > top
      && row.top < top + this.height);
  }

  draw() {
    const { context } = this;
    const { ticks, step } = ticksOf(this.view, this.plotWidth / 110);
    context.clearRect(0, 0, this.width, this.height);
    context.fillStyle = this.colors.css("--grid");
    for (const tick of ticks) context.fillRect(Math.round(this.xOf(tick)), 0, 1, this.height);
    const rows = this.visibleRows();
    context.save();
    context.beginPath();
    context.rect(this.labelWidth, 0, this.plotWidth + 1, this.height);
    context.clip();
    for (const row of rows) this.content.drawRow(this, row);
    if (this.content.drawOver) this.content.drawOver(this);
    if (this.view.cursor !== null) {
      context.fillStyle = this.colors.css("--quiet");
      context.fillRect(Math.round(this.xOf(this.view.cursor)), 0, 1, this.height);
    }
    context.restore();
    for (const row of rows) this.content.drawLabel(this, row);
    this.drawAxis(ticks, step);
  }

  drawAxis(ticks, step) {
    const context = this.axis.getContext("2d");
    context.clearRect(0, 0, this.width, AXIS_HEIGHT);
    context.font = `12px ${this.colors.font}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const tick of ticks) {
      const x = Math.round(this.xOf(tick));
      context.fillStyle = this.colors.css("--line");
      context.fillRect(x, 0, 1, 5);
      const text = tickText(tick, step);
      const half = context.measureText(text).width / 2;
      context.fillStyle = this.colors.css("--quiet");
      context.fillText(text, Math.min(x, this.width - half - 3), AXIS_HEIGHT / 2 + 2);
    }
    context.textAlign = "left";
    context.fillText("time", 12, AXIS_HEIGHT / 2 + 2);
  }

  /** Two lines where there is room: what the row is, and the devices that it stands for. A name is
   *  there as a whole or not at all, as half a number would be another one. */
  drawLabelText(row, title, note) {
    const { context } = this;
    const middle = this.yOf(row) + (row.labelHeight || row.height) / 2;
    const isTall = row.height >= 34;
    const size = Math.min(12.5, Math.max(row.height - 2, 8));
    const width = this.labelWidth - 28 - 8;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = `600 ${size}px ${this.colors.font}`;
    context.fillStyle = this.colors.css("--ink");
    const fits = (text, room) => context.measureText(text).width <= room;
    const text = titlesFor(title).find((each) => fits(each, width)) || "";
    context.fillText(text, 28, isTall ? middle - 7.5 : middle);
    const used = isTall ? 0 : context.measureText(text).width + 8;
    context.font = `${Math.min(size, 11.5)}px ${this.colors.font}`;
    context.fillStyle = this.colors.css("--quiet");
    if (fits(note, width - used + 4)) {
      context.fillText(note, 28 + used, isTall ? middle + 8 : middle);
    }
  }

  /** The stage's colour at the left edge of a label. */
  drawLabelMark(row, stage) {
    this.context.fillStyle = this.colors.fill(2, stage);
    const height = Math.min(row.labelHeight || row.height, 18) - 3;
    this.context.fillRect(12, this.yOf(row) + ((row.labelHeight || row.height) - height) / 2, 8,
      height);
  }

  rowAt(y) {
    const place = y + this.scroller.scrollTop;
    return this.content.rows.find((row) => place >= row.top && place < row.top + row.height);
  }

  listen() {
    const { scroller, canvas, view } = this;
    scroller.addEventListener("scroll", () => {
      this.invalidate();
      this.follow();
    });
    addEventListener("scroll", () => this.follow(), { passive: true });
    scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    scroller.addEventListener("keydown", (event) => this.key(event));
    scroller.addEventListener("blur", () => this.hideTooltip());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => this.release());
    canvas.addEventListener("pointercancel", () => this.release());
    canvas.addEventListener("pointerleave", () => {
      view.setCursor(null);
      this.hideTooltip();
    });
    canvas.addEventListener("dblclick", (event) => {
      const found = this.describeAt(event.offsetX, event.offsetY);
      if (found && found.begin !== undefined) {
        const length = Math.max(found.end - found.begin, 1);
        view.show(found.begin - 2.5 * length, 6 * length);
      } else {
        view.zoom(0.5, this.momentAt(event.offsetX));
      }
    });
  }

  hideTooltip() {
    if (this.tooltip.teller !== this) return;
    this.tooltip.teller = null;
    this.tooltip.hide();
  }

  /** From now on the tooltip tells what `place` finds: () -> {found, x, y} in the window, found null
   *  where it is not in view. All charts share the tooltip. */
  tell(place) {
    this.tooltip.teller = this;
    this.told = place;
    this.follow();
  }

  /** Puts the tooltip where what it tells of is by now. */
  follow() {
    if (this.tooltip.teller !== this) return;
    const { found, x, y } = this.told();
    if (found) this.tooltip.show(found, x, y);
    else this.tooltip.hide();
  }

  describeAt(x, y) {
    const row = this.rowAt(y);
    if (!row || x < this.labelWidth) return null;
    return this.content.describe(this, row, x, y);
  }

  wheel(event) {
    const isOurs = event.ctrlKey || event.metaKey || document.activeElement === this.scroller;
    if (!isOurs) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 24 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.view.pan(((event.deltaX || event.deltaY) * lines) / this.plotWidth);
    } else {
      const x = event.clientX - this.canvas.getBoundingClientRect().left;
      this.view.zoom(Math.exp(event.deltaY * lines * 0.0016), this.momentAt(x));
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.shiftKey && this.content.moveCursor) {
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      const step = steps[event.key];
      if (step) {
        event.preventDefault();
        this.content.moveCursor(this, ...step);
        return;
      }
    }
    const actions = {
      ArrowLeft: () => this.view.pan(-0.15),
      ArrowRight: () => this.view.pan(0.15),
      ArrowUp: () => this.scroller.scrollBy(0, -60),
      ArrowDown: () => this.scroller.scrollBy(0, 60),
      PageUp: () => this.scroller.scrollBy(0, -this.height),
      PageDown: () => this.scroller.scrollBy(0, this.height),
      "+": () => this.view.zoom(1 / 1.5),
      "=": () => this.view.zoom(1 / 1.5),
      "-": () => this.view.zoom(1.5),
      Home: () => this.view.whole(),
      0: () => this.view.whole(),
      Escape: () => this.hideTooltip(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  press(event) {
    if (event.button !== 0) return;
    this.scroller.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = {
      x: event.clientX, y: event.clientY, from: this.view.from, top: this.scroller.scrollTop,
    };
  }

  move(event) {
    if (this.drag) {
      const { drag } = this;
      this.canvas.classList.add("dragging");
      this.hideTooltip();
      this.view.show(drag.from - (event.clientX - drag.x) / this.scale, this.view.span);
      this.scroller.scrollTop = drag.top - (event.clientY - drag.y);
      return;
    }
    const inPlot = event.offsetX >= this.labelWidth;
    this.view.setCursor(inPlot ? Math.min(this.momentAt(event.offsetX), this.view.total) : null);
    const { clientX: x, clientY: y } = event;
    this.tell(() => {
      const corner = this.canvas.getBoundingClientRect();
      return { found: this.describeAt(x - corner.left, y - corner.top), x, y };
    });
  }

  release() {
    this.drag = null;
    this.canvas.classList.remove("dragging");
  }
}
