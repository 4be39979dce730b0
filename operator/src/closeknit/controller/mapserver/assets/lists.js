// Numbers of the whole cluster, and the jobs beside the map: those that wait in their order, and those that hold GPUs.

import { badge } from "./job.js";
import { HIDDEN } from "./store.js";
import { clock, count, gbs, h, keyLink, length, swatch } from "./words.js";

const MOST_LISTED = 200; // of each list: more than that nobody reads, and a browser draws 10,000 in a second
const STATES = [["free", "free"], ["held", "held"], ["mig", "in MIG mode"], ["unusable", "not usable"], ["excluded", "on excluded nodes"]];

export function drawTotals(store) {
  const totals = store.totals;
  if (!totals) return [];
  const all = STATES.reduce((sum, [state]) => sum + totals.gpus[state], 0);
  const bar = h("div", { class: "stack", role: "img", "aria-label": STATES.map(([state, word]) => `${totals.gpus[state]} GPUs ${word}`).join(", ") },
    STATES.filter(([state]) => totals.gpus[state]).map(([state]) => {
      const part = h("span", { class: `part ${state}` });
      part.style.setProperty("flex-grow", totals.gpus[state]);
      return part;
    }));
  const words = STATES.filter(([state]) => totals.gpus[state] || state === "free" || state === "held")
    .map(([state, word]) => h("li", {}, h("span", { class: `key ${state}`, "aria-hidden": "true" }), h("strong", {}, totals.gpus[state].toLocaleString("en")), ` ${word}`));
  return [
    h("p", {}, h("strong", {}, all.toLocaleString("en")), ` ${all === 1 ? "GPU" : "GPUs"} on ${count(totals.nodes, "node")}`),
    bar,
    h("ul", {}, words, totals.largestGang === null || totals.largestGang === undefined ? null
      : h("li", {}, h("strong", {}, totals.largestGang.toLocaleString("en")), " GPUs: the largest gang that fits now")),
  ];
}

export function drawLists(store, words) {
  const now = store.now;
  const isFound = (key, job) => !words || `${key} ${job.state} ${job.reason ?? ""}`.toLowerCase().includes(words);
  const queue = store.queue.map((key, at) => ({ key, at, job: store.jobs.get(key) }));
  const found = queue.filter(({ key, job }) => job && isFound(key, job));
  const shown = found.slice(0, MOST_LISTED);
  const hiddenWaiting = queue.filter(({ key }) => key === HIDDEN).length;
  const holding = store.running;
  const foundHolding = holding.filter(([key, job]) => isFound(key, job));
  const running = foundHolding.slice(0, MOST_LISTED);
  const hiddenRest = store.hidden - hiddenWaiting;
  return [
    h("h2", {}, `Queue `, h("span", { class: "faint" }, numbers(found, queue, words))),
    queue.length === 0 ? h("p", { class: "empty" }, "Nobody waits for GPUs.") : null,
    h("ol", { class: "jobs" }, shown.map(({ key, at, job }) => h("li", { value: at + 1 }, h("a", { href: keyLink(key) },
      h("span", { class: "line" }, h("span", { class: "place" }, `${at + 1}`), h("strong", {}, key), h("span", { class: "right" }, count(job.gpus ?? 0, "GPU"))),
      h("span", { class: "line faint" }, h("span", {}, job.reason || "not looked at yet"), h("span", { class: "right" }, when(job, now))))))),
    more(found, shown),
    hiddenWaiting ? h("p", { class: "faint" }, `${count(hiddenWaiting, "job")} among them that you may not list`) : null,
    h("h2", {}, "Jobs ", h("span", { class: "faint" }, numbers(foundHolding, holding, words))),
    holding.length === 0 ? h("p", { class: "empty" }, "No job holds GPUs.") : null,
    h("ul", { class: "jobs" }, running.map(([key, job]) => h("li", {}, h("a", { href: keyLink(key) },
      h("span", { class: "line" }, swatch(key), h("strong", {}, key), h("span", { class: "right" }, count(job.gpus ?? 0, "GPU"))),
      h("span", { class: "line faint" }, badge(job), h("span", {}, job.reason ?? ""), h("span", { class: "right" }, speed(job))))))),
    more(foundHolding, running),
    hiddenRest > 0 ? h("p", { class: "faint" }, `${count(hiddenRest, "more job")} that you may not list`) : null,
  ];
}

const numbers = (found, all, words) => (words ? `${found.length.toLocaleString("en")} of ` : "") + all.length.toLocaleString("en");

const more = (found, shown) => found.length > shown.length
  ? h("p", { class: "faint" }, `and ${(found.length - shown.length).toLocaleString("en")} more: type a namespace/ or a part of a name into Find`) : null;

function when(job, now) {
  if (job.estimatedStart) return job.estimatedStart > now ? `starts about ${clock(job.estimatedStart, now)}` : "starts soon";
  return job.waitsSince ? `for ${length(now - job.waitsSince)}` : "";
}

function speed(job) {
  if (!job.predictedGbS || !job.shares) return "";
  const ideal = job.idealGbS ?? 0;
  return ideal > job.predictedGbS * 1.005 ? `${gbs(job.predictedGbS)} of ${gbs(ideal)} GB/s` : `${gbs(job.predictedGbS)} GB/s`;
}
