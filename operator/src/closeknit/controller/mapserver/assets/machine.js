// One node: its GPUs on a ring, with every NVLink between them, or around the switches that they all reach.

import { count, gbs, h, hue, keyLink, ranges, s, swatch } from "./words.js";

const SIZE = 360;
const RADIUS = 118;
const GPU = 19;

export function drawNode(store, name) {
  const node = store.nodes.get(name);
  if (!node) return [h("h2", {}, name), h("p", { class: "empty" }, "There is no such node with GPUs any more.")];
  const machine = store.machine(node);
  const parts = [h("h2", {}, name), h("p", { class: "faint" }, where(node, store.levels))];
  if (node.excluded) parts.push(h("p", { class: "note bad" }, h("strong", {}, node.excluded), node.message ? `: ${node.message}` : ""));
  if (!machine) return [...parts, h("p", { class: "empty" }, "No node agent has told what is in it.")];
  const gpus = store.gpus(node);
  parts.push(h("p", {}, `${machine.indexes.length} × ${(machine.products ?? []).join(", ")}; ${links(machine)}`));
  if (node.unnamed) parts.push(h("p", { class: "note" }, `${count(node.unnamed, "of the free GPUs is held").replace("of the free GPUs is helds", "of the free GPUs are held")}; a device plugin does not tell which.`));
  parts.push(picture(machine, gpus, ranksOn(store, name)), table(store, machine, gpus, ranksOn(store, name)));
  return parts;
}

function where(node, levels) {
  const found = (node.domains ?? []).map((domain, at) => `${levels[at] ?? "domain"} ${domain.split("/").at(-1)}`);
  return found.join(", ") || "in no domain of the network";
}

function links(machine) {
  const speed = machine.linkGbS ? ` of ${gbs(machine.linkGbS)} GB/s` : "";
  if (machine.switchLinks?.some(Boolean)) return `NVLink through switches, ${Math.max(...machine.switchLinks)} links${speed} for each`;
  if (machine.links?.length) return `NVLink, direct links${speed}`;
  return "no NVLink";
}

/** Rank of each GPU here, by NVML index. */
function ranksOn(store, name) {
  const found = new Map();
  for (const [key, job] of store.jobs) {
    for (const [node, gpus, first, state] of job.shares ?? []) {
      if (node === name && state !== "Lost") gpus.forEach((gpu, at) => found.set(gpu, { key, rank: first + at }));
    }
  }
  return found;
}

function picture(machine, gpus, ranks) {
  const middle = SIZE / 2;
  const number = gpus.length;
  const place = (at) => {
    const angle = -Math.PI / 2 - Math.PI / number + (2 * Math.PI * at) / number;
    return [middle + RADIUS * Math.cos(angle), middle + RADIUS * Math.sin(angle), angle];
  };
  const drawing = s("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "machine", role: "img", "aria-label": `${count(number, "GPU")}, ${links(machine)}` });
  const switched = machine.switchLinks ?? [];
  for (const [a, b, links] of machine.links ?? []) {
    const [[x1, y1], [x2, y2]] = [place(a), place(b)];
    const line = s("line", { class: "link", x1, y1, x2, y2, "stroke-width": Math.min(9, 1 + 1.5 * links) });
    line.append(s("title", {}, `GPU ${gpus[a].index} – GPU ${gpus[b].index}: ${count(links, "NVLink")}`));
    drawing.append(line);
  }
  if (switched.some(Boolean)) {
    switched.forEach((links, at) => {
      if (!links) return;
      const [x, y] = place(at);
      drawing.append(s("line", { class: "link", x1: middle, y1: middle, x2: x, y2: y, "stroke-width": Math.min(9, 1 + links / 3) }));
    });
    drawing.append(s("circle", { class: "switch", cx: middle, cy: middle, r: 34 }),
      s("text", { class: "switch-name", x: middle, y: middle + 4 }, "NVSwitch"));
  }
  (machine.nics ?? []).forEach(([name, near, isDown]) => {
    if (!near.length || near.length > 4) return;
    const turned = near.map((at) => place(at)[2]);
    const angle = Math.atan2(turned.reduce((sum, each) => sum + Math.sin(each), 0), turned.reduce((sum, each) => sum + Math.cos(each), 0));
    const [x, y] = [middle + (RADIUS + 46) * Math.cos(angle), middle + (RADIUS + 46) * Math.sin(angle)];
    for (const at of near) drawing.append(s("line", { class: "pcie", x1: x, y1: y, x2: place(at)[0], y2: place(at)[1] }));
    drawing.append(s("circle", { class: isDown ? "nic down" : "nic", cx: x, cy: y, r: 5 }, s("title", {}, isDown ? `${name} is down` : name)));
  });
  gpus.forEach((gpu, at) => {
    const [x, y] = place(at);
    const circle = s("circle", { class: `gpu ${gpu.state}`, cx: x, cy: y, r: GPU });
    if (gpu.state === "job") circle.style.setProperty("--hue", hue(gpu.who));
    const parts = gpu.devices?.map((each) => `${each.profile} ${each.why ?? each.who ?? each.state}`).join(", ");
    circle.append(s("title", {}, `GPU ${gpu.index}: ${parts ?? gpu.why ?? gpu.who ?? gpu.state}`));
    const rank = gpu.devices ? undefined : ranks.get(gpu.index);
    drawing.append(circle, ...slices(gpu, x, y), s("text", { class: `gpu-name ${gpu.state}`, x, y: y + (rank ? 1 : 4) }, String(gpu.index)));
    if (rank) drawing.append(s("text", { class: `gpu-rank ${gpu.state}`, x, y: y + 11 }, `r${rank.rank}`));
  });
  return drawing;
}

/** The MIG devices of a GPU, as sectors of its circle. */
function slices(gpu, x, y) {
  const number = gpu.devices?.length ?? 0;
  return (gpu.devices ?? []).map((device, at) => {
    const [from, to] = [at, at + 1].map((each) => (2 * Math.PI * each) / number - Math.PI / 2);
    const round = (angle) => `${(x + GPU * Math.cos(angle)).toFixed(2)} ${(y + GPU * Math.sin(angle)).toFixed(2)}`;
    const half = (from + to) / 2; // an arc of a whole circle has no direction: two halves have
    const path = s("path", { class: `gpu device ${device.state}`, d: `M${x} ${y}L${round(from)}A${GPU} ${GPU} 0 0 1 ${round(half)}A${GPU} ${GPU} 0 0 1 ${round(to)}Z` });
    if (device.state === "job") path.style.setProperty("--hue", hue(device.who));
    return path;
  });
}

const STATES = { free: "free", other: "held by", hidden: "held by a job that you may not list", unknown: "not known", mig: "in MIG mode, without a device" };

function table(store, machine, gpus, ranks) {
  const rows = gpus.flatMap((gpu) => (gpu.devices
    ? gpu.devices.map((device) => ({ ...device, name: `${gpu.index}: ${device.profile}` }))
    : [{ ...gpu, name: String(gpu.index) }])).map((gpu) => {
    // A job on a MIG device has one rank.
    const rank = !gpu.profile ? ranks.get(gpu.index) : gpu.state === "job" ? { rank: 0 } : undefined;
    let told = STATES[gpu.state] ?? gpu.state;
    if (gpu.state === "job") told = [swatch(gpu.who), h("a", { href: keyLink(gpu.who) }, gpu.who)];
    else if (gpu.state === "other") told = `a ${gpu.who} holds it`;
    else if (gpu.state === "broken") told = h("span", { class: "bad" }, gpu.why);
    return h("tr", {}, h("th", { scope: "row" }, gpu.name), h("td", {}, told), h("td", {}, rank ? String(rank.rank) : "–"));
  });
  const islands = (machine.islands ?? []).map((island) => ranges(island)).join(" · ");
  return [
    h("table", {}, h("caption", {}, "Its GPUs"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "GPU"), h("th", { scope: "col" }, "State"), h("th", { scope: "col" }, "Rank"))),
      h("tbody", {}, rows)),
    islands && h("p", { class: "faint" }, `NVLink islands: ${islands}`),
  ];
}
