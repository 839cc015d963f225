// The map: points drawn by deck.gl, edges to landmarks, picking, and a lasso on a sheet above it.

import { Deck, LineLayer, OrthographicView, ScatterplotLayer } from "./vendor/deck.js";
import { edge as colourOf, isDark, paint } from "./colours.js";
import { el } from "./dom.js";

const NEAR = 6;

export class Map2d {
  /** @param stage where to draw; @param on `pick(row)`, `lasso(polygon)`, `look(box)` when the view has come to rest. */
  constructor(stage, on, label) {
    this.on = on;
    this.canvas = el("canvas", { class: "points" });
    this.sheet = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.sheet.classList.add("sheet");
    this.title = el("p", { class: "caption", "aria-live": "polite" }, label ?? "");
    this.box = el("div", { class: "map", tabindex: "0", role: "application", "aria-label": "Map of samples. Arrow keys move, plus and minus zoom, 0 shows everything, L draws a lasso. Samples can also be found by search and filter." }, this.canvas, this.sheet, this.title);
    stage.append(this.box);
    this.view = { target: [0, 0, 0], zoom: 7 };
    this.places = new Float32Array(0);
    this.rows = new Uint32Array(0);
    this.where = new Map();
    this.edges = [];
    this.deck = new Deck({
      canvas: this.canvas,
      width: "100%",
      height: "100%",
      views: new OrthographicView({ flipY: false }),
      viewState: this.view,
      controller: { doubleClickZoom: false, keyboard: false, inertia: false },
      onViewStateChange: ({ viewState }) => this.look(viewState),
      onClick: ({ x, y }) => this.pick(x, y),
      getCursor: ({ isDragging }) => (isDragging ? "grabbing" : "crosshair"),
      layers: [],
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.sheet.addEventListener("pointerdown", (event) => this.drawLasso(event));
    new ResizeObserver(() => this.fitOnce()).observe(this.box);
  }

  fitOnce() {
    if (!this.fitted && this.box.clientWidth > 0) {
      this.fitted = true;
      this.home();
    }
  }

  home() {
    const side = Math.min(this.box.clientWidth, this.box.clientHeight);
    this.look({ target: [0, 0, 0], zoom: Math.log2(Math.max(side, 50) / 2.3) });
  }

  look(view) {
    this.view = { ...this.view, target: view.target, zoom: Math.min(24, Math.max(2, view.zoom)) };
    this.box.dataset.view = [...this.view.target.slice(0, 2), this.view.zoom].join(",");
    this.deck.setProps({ viewState: this.view });
    this.draw();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.on.look?.(this.seen()), 250);
  }

  /** Left, bottom, right and top of what is seen. */
  seen() {
    const scale = 2 ** this.view.zoom;
    const [x, y] = this.view.target;
    const [w, h] = [this.box.clientWidth / 2 / scale, this.box.clientHeight / 2 / scale];
    return [x - w, y - h, x + w, y + h];
  }

  toPlace(px, py) {
    const scale = 2 ** this.view.zoom;
    return [this.view.target[0] + (px - this.box.clientWidth / 2) / scale, this.view.target[1] - (py - this.box.clientHeight / 2) / scale];
  }

  setPoints(rows, places) {
    this.rows = rows;
    this.places = places;
    this.where = new Map();
    rows.forEach((row, i) => this.where.set(row, i));
    this.colour(this.about, this.chosen);
  }

  colour(about, chosen) {
    this.about = about;
    this.chosen = chosen;
    this.colours = paint(this.rows, about, chosen);
    this.draw();
  }

  placeOf(row) {
    const i = this.where.get(row);
    return i === undefined ? null : [this.places[2 * i], this.places[2 * i + 1]];
  }

  /** Show a sample, and its edges: `{ row, score }` of landmarks. */
  show(row, edges = []) {
    this.row = row;
    const largest = Math.max(...edges.map(({ score }) => Math.abs(score)), 1e-12);
    this.edges = edges.map(({ row: other, score }) => ({ from: this.placeOf(row), to: this.placeOf(other), strength: score / largest })).filter(({ from, to }) => from && to);
    this.draw();
  }

  draw() {
    const n = this.rows.length;
    if (!n) return this.deck.setProps({ layers: [] });
    const paper = isDark() ? [27, 33, 39] : [245, 246, 248];
    const ink = isDark() ? [255, 255, 255] : [20, 24, 28];
    const here = this.row === null || this.row === undefined ? null : this.placeOf(this.row);
    const size = (n > 50000 ? 1.4 : n > 5000 ? 2 : 3.2) * Math.min(3, Math.max(1, 1 + (this.view.zoom - 8) / 6));
    this.deck.setProps({
      layers: [
        new ScatterplotLayer({
          id: "points",
          data: { length: n, attributes: { getPosition: { value: this.places, size: 2 }, getFillColor: { value: this.colours, size: 4, normalized: true } } },
          getRadius: 1,
          radiusUnits: "pixels",
          radiusScale: size,
          radiusMinPixels: 1,
          antialiasing: n < 50000,
        }),
        new LineLayer({
          id: "edges",
          data: this.edges,
          getSourcePosition: (edge) => edge.from,
          getTargetPosition: (edge) => edge.to,
          getColor: (edge) => [...colourOf(edge.strength), 235],
          getWidth: (edge) => 1 + 3 * Math.abs(edge.strength),
          widthUnits: "pixels",
        }),
        new ScatterplotLayer({
          id: "ends",
          data: this.edges,
          getPosition: (edge) => edge.to,
          getRadius: 5,
          radiusUnits: "pixels",
          getFillColor: (edge) => (edge.strength > 0 ? [...colourOf(1), 255] : [...paper, 255]), // told apart without colour
          stroked: true,
          lineWidthUnits: "pixels",
          getLineWidth: 2,
          getLineColor: (edge) => [...colourOf(edge.strength), 255],
        }),
        new ScatterplotLayer({
          id: "here",
          data: here ? [here] : [],
          getPosition: (place) => place,
          getRadius: 8,
          radiusUnits: "pixels",
          filled: false,
          stroked: true,
          lineWidthUnits: "pixels",
          getLineWidth: 2.5,
          getLineColor: [...ink, 255],
        }),
      ],
    });
  }

  /** Pick the closest drawn point within a few pixels. */
  pick(px, py) {
    const [x, y] = this.toPlace(px, py);
    let best = (NEAR / 2 ** this.view.zoom) ** 2;
    let found = null;
    for (let i = 0; i < this.rows.length; i++) {
      const [dx, dy] = [this.places[2 * i] - x, this.places[2 * i + 1] - y];
      const apart = dx * dx + dy * dy;
      if (apart < best) [best, found] = [apart, this.rows[i]];
    }
    if (found !== null) this.on.pick?.(found);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60 / 2 ** this.view.zoom;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    const [x, y] = this.view.target;
    if (moves[event.key]) this.look({ ...this.view, target: [x + moves[event.key][0], y + moves[event.key][1], 0] });
    else if (event.key === "+" || event.key === "=") this.look({ ...this.view, zoom: this.view.zoom + 0.5 });
    else if (event.key === "-") this.look({ ...this.view, zoom: this.view.zoom - 0.5 });
    else if (event.key === "0") this.home();
    else if (event.key === "Enter") this.pick(this.box.clientWidth / 2, this.box.clientHeight / 2);
    else return;
    event.preventDefault();
  }

  /** Let the next stroke draw a lasso, or not. */
  armLasso(on) {
    this.box.classList.toggle("lassoing", on);
  }

  drawLasso(event) {
    if (!this.box.classList.contains("lassoing")) return;
    event.preventDefault();
    const frame = this.sheet.getBoundingClientRect();
    const corners = [[event.clientX - frame.left, event.clientY - frame.top]];
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
    this.sheet.replaceChildren(line);
    this.sheet.setPointerCapture(event.pointerId);
    const move = (next) => {
      const at = [next.clientX - frame.left, next.clientY - frame.top];
      const last = corners.at(-1);
      if (Math.hypot(at[0] - last[0], at[1] - last[1]) >= 4) corners.push(at);
      line.setAttribute("points", corners.map((corner) => corner.join(",")).join(" "));
    };
    const end = () => {
      this.sheet.removeEventListener("pointermove", move);
      this.sheet.replaceChildren();
      if (corners.length < 3) return;
      const few = corners.filter((_, i) => i % Math.ceil(corners.length / 60) === 0);
      this.on.lasso?.(few.map(([px, py]) => this.toPlace(px, py).map((value) => Number(value.toFixed(4)))));
    };
    this.sheet.addEventListener("pointermove", move);
    this.sheet.addEventListener("pointerup", end, { once: true });
    this.sheet.addEventListener("pointercancel", end, { once: true });
  }
}
