// One job: why it waits and what would help, or where it sits and what that gives; its phases and its ends.

import { clock, count, gbs, h, hue, length, nodeLink, ranges, s, swatch } from "./words.js";

const RING = 380;
const MOST_RANKS = 64; // as dots of their own; more than that a ring shows nodes
const MOST_NODES = 256;
const MOST_ROWS = 128;

export function drawJob(store, key) {
  const job = store.jobs.get(key);
  if (!job) {
    return [h("h2", {}, key), h("p", { class: "empty" }, "There is no such job, or you may not list the jobs of its namespace.")];
  }
  const now = store.now;
  return [
    h("h2", {}, swatch(key), ` ${job.name}`),
    h("p", { class: "faint" }, `namespace ${job.namespace}`, job.queue ? `, queue ${job.queue}` : "",
      job.priorityClass ? `, priority ${job.priorityClass}` : ""),
    h("p", { class: "lead" }, badge(job), gpusOf(job),
      job.nodes && job.shares ? ` on ${count(job.nodes, "node")}` : "", sinceWhen(job, now)),
    ...waiting(store, key, job, now),
    ...placed(store, key, job),
    ...timeline(job, now),
    ...ends(job, now),
  ];
}

/** An elastic job may hold fewer than it asks for. */
function gpusOf(job) {
  if (!job.gpus) return "";
  const held = (job.shares ?? []).reduce((sum, share) => sum + share[1].length, 0);
  return held && held !== job.gpus ? ` ${held} of ${count(job.gpus, "GPU")}` : ` ${count(job.gpus, "GPU")}`;
}

export const badge = (job) => h("span", { class: `badge ${job.state.toLowerCase()}` }, job.state);

function sinceWhen(job, now) {
  const since = job.waitsSince ?? job.spans?.at(-1)?.[1];
  return since === undefined || since === null ? "" : `, for ${length(now - since)}`;
}

function waiting(store, key, job, now) {
  const parts = [];
  const isBad = job.state === "Failed";
  if (job.reason || job.message) {
    parts.push(h("div", { class: isBad ? "note bad" : "note" }, h("strong", {}, job.reason || "Why"), job.message ? h("p", {}, job.message) : null));
  }
  const place = store.queue.indexOf(key);
  const facts = [];
  if (place >= 0) facts.push(["Place in the queue", `${(place + 1).toLocaleString("en")} of ${store.queue.length.toLocaleString("en")}`]);
  if (job.estimatedStart) facts.push(["Expected to start", job.estimatedStart > now ? `${clock(job.estimatedStart, now)}, in ${length(job.estimatedStart - now)}` : "soon"]);
  else if (place >= 0) facts.push(["Expected to start", "not known: nothing that it waits for says when it ends"]);
  if (job.nextStep) facts.push(["What to do", job.nextStep]);
  parts.push(list(facts));
  if (job.nearest?.length) {
    parts.push(h("h3", {}, "It would fit now"), h("ul", { class: "nearest" }, job.nearest.map((change) => h("li", {}, change))));
  }
  return parts;
}

const list = (facts) => facts.length ? h("dl", {}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))) : null;

function placed(store, key, job) {
  if (!job.shares?.length) return [];
  const spans = Object.entries(job.levels ?? {}).map(([level, domains]) => count(domains, level)).join(", ");
  const facts = [];
  if (spans) facts.push(["Spans", spans]);
  const axes = job.axes ?? [];
  if (axes.length) facts.push(["Parallelism", axes.map(([name, size]) => `${name} ${size}`).join(" × ")]);
  if (job.limitedBy) facts.push(["Limited by", job.limitedBy]);
  if (job.spares?.length) facts.push(["Spare nodes", job.spares.map((name) => h("a", { href: nodeLink(name) }, name, " "))]);
  if (job.lent?.length) facts.push(["Lent to it, until their owner needs them", job.lent.map((name) => h("a", { href: nodeLink(name) }, name, " "))]);
  const lost = job.shares.filter((share) => share[3] === "Lost").map((share) => share[0]);
  const parts = [];
  if (lost.length) parts.push(h("p", { class: "note bad" }, h("strong", {}, "Lost: "), lost.join(", "), ". The rest is held while another node takes its place."));
  if (job.shares.some((share) => share[3] === "Mismatch")) {
    parts.push(h("p", { class: "note" }, "Some of its Pods got other GPUs than planned."));
  }
  parts.push(h("h3", {}, "Where it sits"), bandwidth(job), list(facts), ring(store, key, job), seats(store, job));
  return parts;
}

function bandwidth(job) {
  if (!job.predictedGbS) return h("p", { class: "faint" }, "No bandwidth is predicted: the network between its nodes is not described.");
  const best = Math.max(job.idealGbS ?? 0, job.predictedGbS);
  const share = job.predictedGbS / best;
  const words = `${gbs(job.predictedGbS)} GB/s all-reduce bus bandwidth predicted`;
  return h("div", { class: "bandwidth" }, h("p", {}, h("strong", {}, gbs(job.predictedGbS)), " GB/s all-reduce bus bandwidth predicted"),
    h("meter", { min: 0, max: 1, value: share.toFixed(3), "aria-label": `${words}, of ${gbs(best)} at best` }),
    h("p", { class: "faint" }, share < 0.995 ? `${Math.round(share * 100)}% of the ${gbs(best)} GB/s that this cluster could give at best` : "as much as this cluster could give at best"));
}

/** What the hop from one GPU to the next crosses. */
function crosses(store, [one, a], [other, b]) {
  if (one === other) {
    const islands = store.machine(store.nodes.get(one) ?? {})?.islands ?? [];
    return islands.some((island) => island.includes(a) && island.includes(b)) ? "nvlink" : "pcie";
  }
  const [from, to] = [one, other].map((name) => store.nodes.get(name)?.domains ?? []);
  for (let level = from.length - 1; level >= 0; level--) {
    if (from[level] !== undefined && from[level] === to[level]) return level === from.length - 1 ? "near" : "far";
  }
  return from.length ? "far" : "near";
}

const HOPS = { nvlink: "NVLink", pcie: "PCIe", near: "network", far: "network between domains" };

function hopName(kind, levels) {
  const inner = levels.at(-1);
  if (kind === "near") return inner ? `inside a ${inner}` : "between nodes";
  return kind === "far" && inner ? `between ${inner}s` : HOPS[kind];
}

/** Ranks in their order, as an all-reduce goes round them, and what each hop crosses. */
function ring(store, key, job) {
  const seats = job.shares.flatMap(([node, gpus, first]) => gpus.map((gpu, at) => ({ node, gpu, rank: first + at })));
  if (seats.length < 2) return null;
  const hops = {};
  seats.forEach((seat, at) => {
    const next = seats[(at + 1) % seats.length];
    seat.hop = crosses(store, [seat.node, seat.gpu], [next.node, next.gpu]);
    hops[seat.hop] = (hops[seat.hop] ?? 0) + 1;
  });
  const told = Object.entries(hops).map(([kind, number]) => `${number} ${hopName(kind, store.levels)}`);
  const legend = h("ul", { class: "hops", "aria-label": "Hops of the ring" }, Object.entries(hops).map(([kind, number]) =>
    h("li", {}, s("svg", { width: 22, height: 8, "aria-hidden": "true" }, s("line", { class: `hop ${kind}`, x1: 1, y1: 4, x2: 21, y2: 4 })), ` ${count(number, "hop")} ${kind === "nvlink" || kind === "pcie" ? `over ${HOPS[kind]}` : hopName(kind, store.levels)}`)));
  if (job.shares.length > MOST_NODES) return legend;
  const isFine = seats.length <= MOST_RANKS;
  const dots = isFine ? seats : job.shares.map(([node, gpus, first]) => {
    const last = seats.find((seat) => seat.rank === first + gpus.length - 1);
    return { node, rank: first, last: first + gpus.length - 1, hop: last.hop };
  });
  const middle = RING / 2;
  const radius = middle - 58;
  const angle = (at) => -Math.PI / 2 + (2 * Math.PI * at) / dots.length;
  const point = (at, far = radius) => [middle + far * Math.cos(angle(at)), middle + far * Math.sin(angle(at))];
  const drawing = s("svg", { viewBox: `0 0 ${RING} ${RING}`, class: "ring", role: "img", "aria-label": `Ring of ${count(seats.length, "rank")}: ${told.join(", ")}` });
  drawing.style.setProperty("--hue", hue(key));
  const size = Math.max(3.5, Math.min(11, (Math.PI * radius) / dots.length - 2));
  dots.forEach((dot, at) => {
    const [[x1, y1], [x2, y2]] = [point(at), point((at + 1) % dots.length)];
    drawing.append(s("path", { class: `hop ${dot.hop}`, d: `M${x1.toFixed(1)} ${y1.toFixed(1)}A${radius} ${radius} 0 0 1 ${x2.toFixed(1)} ${y2.toFixed(1)}` }));
  });
  const nodes = job.shares.map((share) => share[0]);
  dots.forEach((dot, at) => {
    const [x, y] = point(at);
    const isLost = job.shares[nodes.indexOf(dot.node)][3] === "Lost";
    const mark = s("circle", { class: `rank${nodes.indexOf(dot.node) % 2 ? " odd" : ""}${isLost ? " lost" : ""}`, cx: x.toFixed(1), cy: y.toFixed(1), r: size });
    const ranks = dot.last === undefined ? `rank ${dot.rank}` : `ranks ${dot.rank}-${dot.last}`;
    mark.append(s("title", {}, `${ranks}: ${dot.node}${dot.gpu === undefined ? "" : `, GPU ${dot.gpu}`}${isLost ? ", lost" : ""}`));
    drawing.append(mark);
    if (size >= 8) drawing.append(s("text", { class: "rank-name", x, y: y + 3.5 }, String(dot.rank)));
  });
  if (job.shares.length <= 16) {
    for (const [node, , , state] of job.shares) {
      const places = dots.map((dot, at) => [dot, at]).filter(([dot]) => dot.node === node).map(([, at]) => at);
      if (!places.length) continue;
      const mid = places[0] + (places.length - 1) / 2;
      const [x, y] = point(mid, radius + size + 12);
      const anchor = Math.cos(angle(mid)) > 0.3 ? "start" : Math.cos(angle(mid)) < -0.3 ? "end" : "middle";
      drawing.append(s("text", { class: state === "Lost" ? "ring-node lost" : "ring-node", x: x.toFixed(1), y: (y + 4).toFixed(1), "text-anchor": anchor }, node.split(".")[0].slice(-12)));
    }
  }
  drawing.append(s("text", { class: "ring-size", x: middle, y: middle - 2 }, String(seats.length)), s("text", { class: "ring-unit", x: middle, y: middle + 16 }, "ranks in a ring"));
  return h("figure", {}, drawing, h("figcaption", {}, legend));
}

function seats(store, job) {
  const axes = job.axes ?? [];
  const rows = job.shares.slice(0, MOST_ROWS).map(([node, gpus, first, state]) => h("tr", {},
    h("th", { scope: "row" }, gpus.length > 1 ? `${first}-${first + gpus.length - 1}` : String(first)),
    h("td", {}, h("a", { href: nodeLink(node) }, node)),
    h("td", {}, ranges(gpus)),
    axes.map(([, size, stride]) => h("td", {}, ranges(new Set(gpus.map((_, at) => Math.floor((first + at) / stride) % size))))),
    h("td", { class: ["Lost", "Mismatch"].includes(state) ? "bad" : "" }, state || "–")));
  const left = (job.nodes ?? 0) - rows.length;
  return [
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Ranks" }, h("table", {}, h("caption", {}, "Ranks"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Ranks"), h("th", { scope: "col" }, "Node"), h("th", { scope: "col" }, "GPUs"),
        axes.map(([name]) => h("th", { scope: "col" }, name)), h("th", { scope: "col" }, "State"))),
      h("tbody", {}, rows))),
    left > 0 ? h("p", { class: "faint" }, `and ${count(left, "node")} more: closeknit ranks ${job.name} -n ${job.namespace}`) : null,
  ];
}

const PHASES = {
  waiting: "waits for GPUs", starting: "starts", running: "runs", suspended: "is suspended", detect: "fault to end", decide: "until booked",
  free: "until its first Pod", bind: "until bound", start: "until all run", firstStep: "until its first step",
};

function timeline(job, now) {
  const spans = job.spans ?? [];
  if (!spans.length) return [];
  const first = spans[0][1];
  const last = Math.max(...spans.map(([, since, until]) => until ?? Math.max(now, since)));
  const [wide, high] = [400, 26];
  const scale = wide / Math.max(1, last - first);
  const bar = s("svg", { viewBox: `0 0 ${wide} ${high}`, class: "timeline", role: "img", preserveAspectRatio: "none", "aria-label": "Phases, listed below" });
  for (const [phase, since, until] of spans) {
    const x = (since - first) * scale;
    const end = ((until ?? last) - first) * scale;
    bar.append(s("rect", { class: `span ${phase}`, x: Math.min(x, wide - 2).toFixed(2), y: 0, width: Math.max(2, end - x).toFixed(2), height: high },
      s("title", {}, `${PHASES[phase] ?? phase}: ${length((until ?? now) - since)}`)));
  }
  const rows = spans.map(([phase, since, until, words]) => h("tr", {},
    h("td", {}, h("span", { class: `dot ${phase}`, "aria-hidden": "true" }), ` ${PHASES[phase] ?? phase}`),
    h("td", {}, clock(since, now)), h("td", {}, until === undefined || until === null ? `${length(now - since)} so far` : length(until - since)), h("td", {}, words ?? "")));
  const facts = [];
  if (job.trainedS !== undefined) facts.push(["Trained", length(job.trainedS)]);
  if (job.ettr !== undefined) facts.push(["Effective training time", `${(job.ettr * 100).toFixed(1)}%`]);
  if (job.lostGpuS) facts.push(["Lost", `${(job.lostGpuS / 3600).toFixed(1)} GPU-hours`]);
  if (job.restarts) facts.push(["Restarts", String(job.restarts)]);
  return [
    h("h3", {}, "Its time"), bar,
    h("div", { class: "ticks faint" }, h("span", {}, clock(first, now)), h("span", {}, last >= now - 5 ? "now" : clock(last, now))),
    list(facts),
    h("details", {}, h("summary", {}, `${count(spans.length, "phase")}`), h("table", {},
      h("thead", {}, h("tr", {}, ["Phase", "Since", "Lasted", "After"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))),
  ];
}

function ends(job, now) {
  if (!job.runs?.length) return [];
  return [
    h("h3", {}, "Ends of its runs"),
    h("ol", { class: "ends" }, job.runs.map((run) => h("li", {},
      h("strong", {}, run.reason), ` ${clock(run.ended, now)}`, run.inPlace ? ", went on in the same Pods" : "",
      run.charged ? ", counts against its limit" : "",
      run.message ? h("p", {}, run.message) : null,
      run.blamed?.length ? h("p", { class: "faint" }, `blamed: ${run.blamed.join(", ")}`) : null))),
  ];
}
