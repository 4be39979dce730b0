// The page: who asks, what is shown, and what has changed.

import { drawJob } from "./job.js";
import { drawLists, drawTotals } from "./lists.js";
import { drawNode } from "./machine.js";
import { Racks } from "./racks.js";
import { Store } from "./store.js";
import { Feed } from "./stream.js";
import { h, s } from "./words.js";

const TICK_MS = 1000; // how long something lasts goes on though nothing has changed
const $ = (id) => document.getElementById(id);

const store = new Store();
const panel = $("panel");
const racks = new Racks(store, $("racks"));
let isDrawing = false;
let isWhole = false;

/** What the address names: a job, a node, or nothing. */
function route() {
  const [, kind, ...rest] = location.hash.split("/");
  let names;
  try {
    names = rest.map(decodeURIComponent);
  } catch {
    return { kind: "" };
  }
  if (kind === "job" && names.length === 2) return { kind, key: names.join("/") };
  if (kind === "node" && names.length === 1) return { kind, key: names[0] };
  return { kind: "" };
}

function draw() {
  isDrawing = false;
  if (!isWhole) return; // the token ended, or another whole is on its way, since this frame was asked for
  const news = store.news();
  $("totals").replaceChildren(...drawTotals(store));
  racks.draw(news);
  pick();
  drawPanel();
  const isFirst = panel.hidden;
  $("map").hidden = panel.hidden = false;
  $("gate").hidden = true;
  if (isFirst) reveal();
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn ?? 0) + 1);
}

/** On a narrow page the panel is below the map, where nobody sees it open. */
function reveal() {
  if (route().kind && matchMedia("(max-width: 1000px)").matches) panel.scrollIntoView();
}

function drawPanel() {
  const { kind, key } = route();
  const words = $("find").value.trim().toLowerCase();
  const isOpen = new Set([...panel.querySelectorAll("details[open]")].map((each) => each.className));
  const focused = panel.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const back = h("p", { class: "back" }, h("a", { href: "#/" }, "← All jobs"));
  let parts;
  if (kind === "job") parts = [back, drawJob(store, key)];
  else if (kind === "node") parts = [back, drawNode(store, key)];
  else parts = drawLists(store, words);
  const scrolled = panel.scrollTop;
  panel.replaceChildren(...[parts].flat(Infinity).filter((part) => part !== null && part !== false && part !== undefined));
  panel.setAttribute("aria-label", kind === "job" ? `Job ${key}` : kind === "node" ? `Node ${key}` : "Jobs");
  if (isOpen.size) for (const each of panel.querySelectorAll("details")) each.open = true;
  panel.scrollTop = scrolled;
  if (focused) for (const link of panel.querySelectorAll("a")) if (link.getAttribute("href") === focused) link.focus();
  document.title = key ? `${key} – closeknit map` : "closeknit map";
}

function later() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(draw);
}

function say(words, isLive) {
  const live = $("live");
  if (live.textContent !== words) live.textContent = words;
  live.className = isLive ? "live" : "lost";
}

const feed = new Feed({
  open: () => say("live", true),
  told: (message) => {
    isWhole = store.take(message);
    if (isWhole) later();
  },
  lost: (words) => say(`${words}: tries again`, false),
  refused: (error) => {
    isWhole = false;
    store.clear();
    $("map").hidden = panel.hidden = true;
    $("totals").replaceChildren();
    $("gate").hidden = false;
    $("gate-words").textContent = feed.token ? error.message : "";
    say(error.status === 403 ? "not allowed" : "a token is needed", false);
    $("token").value = "";
    $("token").focus();
  },
});

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  $("token").value = "";
  say("connecting", false);
  feed.start(token, $("namespaces").value.trim());
});

$("find").addEventListener("input", (event) => {
  racks.find(event.target.value);
  drawPanel();
});

addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(event.target.tagName) && !$("map").hidden) {
    event.preventDefault();
    $("find").focus();
  } else if (event.key === "Escape" && location.hash.length > 2) {
    location.hash = "#/";
  }
});

/** On the map the job that is open stands out, if it holds anything. */
function pick() {
  const { kind, key } = route();
  const picked = kind === "job" && store.jobs.get(key)?.shares?.length ? key : null;
  if (picked !== racks.picked) racks.pick(picked);
}

function go() {
  const { kind, key } = route();
  pick();
  for (const each of document.querySelectorAll("button.node.open")) each.classList.remove("open");
  if (kind === "node") racks.cards.get(key)?.button.classList.add("open");
  if (isWhole) {
    drawPanel();
    panel.scrollTop = 0;
    if (kind) panel.focus({ preventScroll: true });
    reveal();
  }
}
addEventListener("hashchange", go);

const THEMES = ["auto", "light", "dark"];
function paint(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
}
function remembered() {
  try {
    return THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto";
  } catch {
    return "auto";
  }
}
$("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  paint(next);
  try {
    localStorage.setItem("theme", next);
  } catch {
    // A browser that keeps nothing: the next visit begins with auto.
  }
});

const MARKS = [["free", "free"], ["job", "a job, each in its colour"], ["other", "a Pod or claim"], ["hidden", "a job that you may not list"], ["broken", "not usable"]];
$("legend").append(...MARKS.map(([state, words]) => {
  const cell = s("rect", { class: `gpu ${state}`, x: 0.5, y: 0.5, width: 10, height: 10, rx: 1.5 });
  cell.style.setProperty("--hue", 150);
  return h("li", {}, s("svg", { width: 11, height: 11, "aria-hidden": "true" }, cell), ` ${words}`);
}), h("li", {}, s("svg", { width: 11, height: 11, "aria-hidden": "true" }, s("rect", { class: "gpu mig", x: 0.5, y: 0.5, width: 10, height: 10 }),
  s("rect", { class: "gpu device other", x: 1, y: 1, width: 2.7, height: 9 }), s("rect", { class: "gpu device other", x: 7.3, y: 1, width: 2.7, height: 9 })), " cut into MIG devices"), h("li", {}, s("svg", { width: 20, height: 11, "aria-hidden": "true" },
  s("rect", { class: "nvlink", x: 6, y: 3.5, width: 8, height: 4 }), s("rect", { class: "gpu free", x: 0.5, y: 1, width: 8, height: 9, rx: 1.5 }),
  s("rect", { class: "gpu free", x: 11.5, y: 1, width: 8, height: 9, rx: 1.5 })), " joined by NVLink"));

paint(remembered());
setInterval(() => {
  if (isWhole && route().kind === "job" && !document.hidden) drawPanel();
}, TICK_MS * 5);
go();
feed.start("", "");
