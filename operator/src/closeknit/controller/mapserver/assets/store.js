// The cluster as the stream has told it so far.

import { forgetHue } from "./words.js";

export const HIDDEN = "?";
export const MIG = "MIG"; // why no Pod can have a GPU as a whole that is in MIG mode

const held = (who) => (who.includes("/") ? "job" : who === HIDDEN ? "hidden" : "other");

export class Store {
  constructor() {
    this.clear();
    this.skew = 0;
  }

  clear() {
    this.levels = [];
    this.totals = null;
    this.machines = new Map();
    this.nodes = new Map();
    this.jobs = new Map();
    this.queue = [];
    this.hidden = 0;
    this.changed = { all: true, nodes: new Set(), jobs: new Set() };
  }

  /** Takes in one message. Whether what belongs together has come. */
  take(message) {
    if (message.reset) this.clear();
    this.skew = message.now - Date.now() / 1000;
    for (const name of ["levels", "totals", "hidden"]) {
      if (name in message) this[name] = message[name];
    }
    for (const [place, gone, come] of message.queue ?? []) {
      const keys = come.flatMap((key) => (typeof key === "number" ? new Array(key).fill(HIDDEN) : key));
      this.queue = this.queue.slice(0, place).concat(keys, this.queue.slice(place + gone));
    }
    for (const [key, machine] of Object.entries(message.machines ?? {})) this.machines.set(key, machine);
    this.merge("nodes", message.nodes);
    this.merge("jobs", message.jobs);
    return !message.more;
  }

  merge(section, rows) {
    for (const [key, row] of Object.entries(rows ?? {})) {
      if (row === null) {
        this[section].delete(key);
        if (section === "jobs") forgetHue(key);
      } else this[section].set(key, row);
      this.changed[section].add(key);
    }
  }

  /** What has changed since it was last asked. */
  news() {
    const { changed } = this;
    this.changed = { all: false, nodes: new Set(), jobs: new Set() };
    return changed;
  }

  /** The server's clock. */
  get now() {
    return Date.now() / 1000 + this.skew;
  }

  machine(node) {
    return this.machines.get(node.machine ?? "");
  }

  /** State of each GPU of a node, in the order of its machine. One that is cut has the states of its MIG devices. */
  gpus(node) {
    const machine = this.machine(node);
    if (!machine) return [];
    const found = new Map();
    for (const index of node.free ?? []) found.set(index, { state: "free" });
    for (const [who, gpus] of Object.entries(node.held ?? {})) {
      for (const index of gpus) found.set(index, { state: held(who), who });
    }
    for (const [index, why] of Object.entries(node.unusable ?? {})) found.set(Number(index), { state: why === MIG ? "mig" : "broken", why });
    const cut = new Map();
    for (const [index, profile, who, why] of node.mig ?? []) {
      if (!cut.has(index)) cut.set(index, []);
      cut.get(index).push({ profile, ...(why ? { state: "broken", why } : who ? { state: held(who), who } : { state: "free" }) });
    }
    for (const [index, devices] of cut) found.set(index, { state: "mig", devices });
    return machine.indexes.map((index) => ({ index, ...(found.get(index) ?? { state: "unknown" }) }));
  }

  /** In the order of a list: those that hold GPUs, then those that are over. */
  get running() {
    const order = { Running: 0, Starting: 1, Restarting: 2, Suspended: 3, Failed: 4, Succeeded: 5 };
    const queued = new Set(this.queue);
    return [...this.jobs.entries()]
      .filter(([key]) => !queued.has(key))
      .sort(([a, one], [b, other]) => (order[one.state] ?? 9) - (order[other.state] ?? 9) || (a < b ? -1 : 1));
  }
}
