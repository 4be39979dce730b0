// Elements and words. Text of others is only ever set as text: there is no innerHTML here, and the page's policy has none.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An element of HTML. Children are elements or text. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** An element of SVG. */
export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** Seconds in at most two units: 2h 5m. */
export function length(seconds) {
  let left = Math.max(0, Math.round(seconds));
  const told = [];
  for (const [unit, size] of UNITS) {
    const number = Math.floor(left / size);
    if (number > 0) told.push(`${number}${unit}`);
    left -= number * size;
    if (told.length === 2 || (told.length === 1 && number === 0)) break;
  }
  return told.join(" ") || "0s";
}

/** A moment on the reader's clock, with the day if it is another one. */
export function clock(seconds, now) {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const isToday = at.toDateString() === new Date(now * 1000).toDateString();
  return isToday ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

export const gbs = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

/** Numbers in runs: 0-3, 6. */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const told = [];
  for (let at = 0; at < sorted.length; at++) {
    const first = sorted[at];
    while (at + 1 < sorted.length && sorted[at + 1] === sorted[at] + 1) at++;
    told.push(first === sorted[at] ? `${first}` : `${first}-${sorted[at]}`);
  }
  return told.join(", ");
}

const HUES = 15;
const slots = new Map(); // by job
const taken = new Array(HUES).fill(0);

/** The hue of a job: by its name, and the next one that fewer others have. Reds mean that something is broken. */
export function hue(key) {
  if (!slots.has(key)) {
    let hash = 2166136261;
    for (let at = 0; at < key.length; at++) hash = Math.imul(hash ^ key.charCodeAt(at), 16777619);
    const first = (hash >>> 0) % HUES;
    const least = Math.min(...taken);
    let slot = first;
    for (let step = 0; step < HUES && taken[slot] > least; step++) slot = (first + step * 4) % HUES;
    taken[slot]++;
    slots.set(key, slot);
  }
  return 60 + (slots.get(key) * 285) / HUES;
}

/** A job is gone: its hue is for others. */
export function forgetHue(key) {
  if (slots.has(key)) taken[slots.get(key)]--;
  slots.delete(key);
}

export const jobLink = (namespace, name) => `#/job/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
export const nodeLink = (name) => `#/node/${encodeURIComponent(name)}`;
export const keyLink = (key) => jobLink(...key.split("/"));

const sorter = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => sorter.compare(a, b);

/** A patch in the job's colour. */
export function swatch(key) {
  const patch = h("span", { class: "swatch", "aria-hidden": "true" });
  patch.style.setProperty("--hue", hue(key));
  return patch;
}
