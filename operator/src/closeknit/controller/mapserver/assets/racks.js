// Racks and their nodes. Every rack is a box at once; the GPUs of its nodes are drawn when it comes into sight.

import { MIG } from "./store.js";
import { byName, count, h, hue, nodeLink, s } from "./words.js";

const CELL = 9;
const GAP = 2;
const STEP = CELL + GAP;
const MIG_GAP = 0.4; // between the MIG devices of one GPU, of which there are seven at most
const COMPACT_FROM = 160; // nodes: beyond, names go and marks stay
const ROOMY_TO = 24;

/** GPUs in rows of four, or of eight where a machine has more than eight. */
const columns = (gpus) => (gpus <= 4 ? Math.max(1, gpus) : gpus <= 8 ? 4 : 8);

export class Racks {
  constructor(store, box, show) {
    this.store = store;
    this.box = box;
    this.show = show;
    this.cards = new Map(); // by node: its button, and whether it is drawn
    this.racks = new Map(); // by domain: its section, and the nodes in it
    this.picked = null;
    this.words = "";
    this.sight = new IntersectionObserver((entries) => this.see(entries), { rootMargin: "400px" });
    box.addEventListener("keydown", (event) => this.move(event));
    box.addEventListener("click", (event) => {
      const card = event.target.closest?.("button.node");
      if (card) location.hash = nodeLink(card.dataset.node);
    });
  }

  /** Draws what has changed. */
  draw({ all, nodes }) {
    const { store } = this;
    const isOther = all || [...nodes].some((name) => this.rackOf(name) !== this.cards.get(name)?.rack);
    if (isOther) {
      this.build();
      return;
    }
    const touched = new Set();
    for (const name of nodes) {
      const card = this.cards.get(name);
      if (!card) continue; // it came and went between two frames
      if (card.isDrawn) this.fill(card);
      touched.add(card.rack);
    }
    for (const rack of touched) this.sum(this.racks.get(rack));
    this.size();
  }

  size() {
    this.box.classList.toggle("compact", this.store.nodes.size > COMPACT_FROM);
    this.box.classList.toggle("roomy", this.store.nodes.size <= ROOMY_TO);
  }

  rackOf(name) {
    const node = this.store.nodes.get(name);
    return node ? (node.domains ?? []).at(-1) ?? "" : undefined;
  }

  build() {
    const inside = new Map();
    for (const name of [...this.store.nodes.keys()].sort(byName)) {
      const rack = this.rackOf(name);
      if (!inside.has(rack)) inside.set(rack, []);
      inside.get(rack).push(name);
    }
    this.sight.disconnect();
    this.cards.clear();
    this.racks.clear();
    const parts = [];
    let outer = null;
    const level = this.store.levels.at(-1) ?? "node";
    for (const domain of [...inside.keys()].sort(byName)) {
      const path = domain.split("/");
      const around = path.slice(0, -1).join(" / ");
      if (around !== outer && domain && path.length > 1) parts.push(h("h2", { class: "outer" }, around));
      outer = around;
      const names = inside.get(domain);
      const title = domain ? path.at(-1) : this.store.levels.length ? `without a ${level}` : "all nodes";
      const number = h("span", { class: "faint" });
      const grid = h("div", { class: "nodes" });
      const rack = { names, grid, number, section: null };
      const gpus = Math.max(...names.map((name) => this.store.machine(this.store.nodes.get(name))?.indexes.length ?? 8));
      for (const name of names) {
        const button = h("button", { type: "button", class: "node", "data-node": name, tabindex: "-1" });
        this.cards.set(name, { name, rack: domain, button, isDrawn: false });
        this.label(this.cards.get(name));
        grid.append(button);
      }
      rack.section = h("section", { class: "rack", "data-rack": domain, "aria-label": `${level} ${title}` },
        h(path.length > 1 ? "h3" : "h2", { class: "title" }, title, " ", number), grid);
      rack.section.style.setProperty("--columns", columns(gpus));
      rack.section.style.setProperty("--rows", Math.ceil(gpus / columns(gpus)));
      this.racks.set(domain, rack);
      this.sum(rack);
      parts.push(rack.section);
    }
    if (!parts.length) parts.push(h("p", { class: "empty" }, "No node with GPUs yet: node agents report them."));
    this.box.replaceChildren(...parts);
    this.size();
    for (const rack of this.racks.values()) this.sight.observe(rack.section);
    const first = this.cards.values().next().value;
    if (first) first.button.tabIndex = 0;
    this.mark();
  }

  see(entries) {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const name of this.racks.get(target.dataset.rack)?.names ?? []) {
        const card = this.cards.get(name);
        if (card && !card.isDrawn && this.store.nodes.has(name)) this.fill(card);
      }
    }
  }

  sum(rack) {
    let free = 0;
    let all = 0;
    for (const name of rack.names) {
      const node = this.store.nodes.get(name);
      all += this.store.machine(node)?.indexes.length ?? 0;
      if (!node.excluded) free += (node.free?.length ?? 0) - (node.unnamed ?? 0);
    }
    rack.number.textContent = `${free} of ${count(all, "GPU")} free`;
  }

  /** What a node is, in words, for who does not see it. */
  label(card) {
    const node = this.store.nodes.get(card.name);
    const told = [card.name];
    if (node.excluded) told.push(`gets no job: ${node.excluded}`);
    else told.push(`${(node.free?.length ?? 0) - (node.unnamed ?? 0)} free`);
    for (const [who, gpus] of Object.entries(node.held ?? {})) {
      const name = who === "?" ? "jobs that you may not list" : who.includes("/") ? who : `a ${who}`;
      told.push(`${name} holds ${gpus.length}`);
    }
    const cut = new Set((node.mig ?? []).map(([gpu]) => gpu));
    const free = (node.mig ?? []).filter(([, , who, why]) => !who && !why).length;
    if (cut.size) told.push(`${free} of ${count(node.mig.length, "MIG device")} free`);
    for (const who of new Set((node.mig ?? []).map((each) => each[2]).filter((who) => who.includes("/")))) told.push(`${who} has a MIG device`);
    const others = Object.entries(node.unusable ?? {}).filter(([gpu]) => !cut.has(Number(gpu)));
    const uncut = others.filter(([, why]) => why === MIG).length;
    if (uncut) told.push(`${uncut} in MIG mode without a device`);
    const broken = others.length - uncut;
    if (broken) told.push(`${broken} not usable`);
    card.button.setAttribute("aria-label", told.join(", "));
    card.button.title = told.join("\n");
  }

  fill(card) {
    const { store } = this;
    const node = store.nodes.get(card.name);
    const gpus = store.gpus(node);
    const wide = columns(gpus.length);
    const high = Math.ceil(gpus.length / wide);
    const picture = s("svg", { viewBox: `-1 -1 ${wide * STEP - GAP + 2} ${Math.max(1, high) * STEP - GAP + 2}`, "aria-hidden": "true" });
    const at = new Map(gpus.map((gpu, place) => [gpu.index, { x: (place % wide) * STEP, y: Math.floor(place / wide) * STEP }]));
    const island = new Map();
    (store.machine(node)?.islands ?? []).forEach((members, number) => members.forEach((index) => island.set(index, number)));
    for (const [index, { x, y }] of at) {
      for (const [dx, dy] of [[STEP, 0], [0, STEP]]) {
        const other = [...at].find(([, place]) => place.x === x + dx && place.y === y + dy)?.[0];
        if (other === undefined || !island.has(index) || island.get(index) !== island.get(other)) continue;
        picture.append(s("rect", dx
          ? { class: "nvlink", x: x + CELL - 1, y: y + 2.5, width: GAP + 2, height: CELL - 5 }
          : { class: "nvlink", x: x + 2.5, y: y + CELL - 1, width: CELL - 5, height: GAP + 2 }));
      }
    }
    for (const gpu of gpus) {
      const { x, y } = at.get(gpu.index);
      const parts = gpu.devices ?? [gpu];
      if (gpu.devices) picture.append(s("rect", { class: "gpu mig", x, y, width: CELL, height: CELL }));
      const wide = (CELL - (parts.length - 1) * MIG_GAP) / parts.length;
      parts.forEach((part, number) => {
        const cell = s("rect", { class: gpu.devices ? `gpu device ${part.state}` : `gpu ${part.state}`, x: x + number * (wide + MIG_GAP), y, width: wide, height: CELL, rx: gpu.devices ? 0 : 1.5 });
        if (part.state === "job") {
          cell.dataset.job = part.who;
          cell.style.setProperty("--hue", hue(part.who));
          if (part.who === this.picked) cell.classList.add("picked");
        }
        picture.append(cell);
      });
      if (gpu.state === "broken") {
        picture.append(s("path", { class: "cross", d: `M${x + 2} ${y + 2}l${CELL - 4} ${CELL - 4}m0 ${4 - CELL}l${4 - CELL} ${CELL - 4}` }));
      }
    }
    const name = h("span", { class: "name" }, card.name.split(".")[0]);
    card.button.replaceChildren(picture, name);
    card.button.classList.toggle("excluded", Boolean(node.excluded));
    card.isDrawn = true;
    this.label(card);
  }

  /** Shows one job, and the rest faint. */
  pick(job) {
    this.picked = job;
    this.box.classList.toggle("has-pick", Boolean(job));
    for (const cell of this.box.querySelectorAll("rect.job")) cell.classList.toggle("picked", cell.dataset.job === job);
  }

  /** Leaves in sight what these words are found in. */
  find(words) {
    this.words = words.trim().toLowerCase();
    this.mark();
  }

  mark() {
    const { words } = this;
    for (const [domain, rack] of this.racks) {
      let shown = 0;
      for (const name of rack.names) {
        const node = this.store.nodes.get(name);
        if (!node) continue; // gone, and not drawn yet
        const holders = [...Object.keys(node.held ?? {}), ...(node.mig ?? []).map((each) => each[2])];
        const text = [name, domain, ...holders, node.excluded ?? ""].join(" ").toLowerCase();
        const isFound = !words || text.includes(words);
        this.cards.get(name).button.hidden = !isFound;
        shown += isFound ? 1 : 0;
      }
      rack.section.hidden = shown === 0;
    }
  }

  move(event) {
    const card = event.target.closest?.("button.node");
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (!card || !(event.key in steps)) return;
    event.preventDefault();
    const [dx, dy] = steps[event.key];
    const next = dy ? this.above(card, dy) : this.beside(card, dx);
    if (!next) return;
    card.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  beside(card, step) {
    const shown = [...this.box.querySelectorAll("button.node:not([hidden])")];
    return shown[shown.indexOf(card) + step];
  }

  /** The nearest one in the next row that way. */
  above(card, step) {
    const from = card.getBoundingClientRect();
    let best = null;
    let least = Infinity;
    for (const each of this.box.querySelectorAll("button.node:not([hidden])")) {
      const to = each.getBoundingClientRect();
      const down = (to.top - from.top) * step;
      if (down < 4) continue;
      const far = down * 4 + Math.abs(to.left - from.left);
      if (far < least) [best, least] = [each, far];
    }
    return best;
  }
}
