"use strict";
// User interface: search, choose, rate, and show lists that update immediately. Nothing is stored or sent.

const documentText = window.document.getElementById("model").textContent;
const model = unpackModel(JSON.parse(documentText));
const history = new Map();  // position of an item -> rating
const HOW_MANY = 10, SUGGESTIONS = 8;
const byId = (id) => window.document.getElementById(id);

function element(name, attributes, ...inner) {
  const made = window.document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [kind, act] of Object.entries(value)) made.addEventListener(kind, act);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inner.filter((part) => part !== null));
  return made;
}

const titleOf = (j) => (model.titles ? model.titles[j] : String(model.ids[j]));
const shownTitle = (j) => element("bdi", {}, titleOf(j));
const number = (value) => (Math.round(value * 100) / 100).toLocaleString("en", { maximumFractionDigits: 2 });
const plain = (text) => text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase();

// ---------------------------------------------------------------- search

let searchable = null;

function matches(query) {
  const words = plain(query).split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  if (!searchable) searchable = Array.from({ length: model.count }, (_, j) => plain(titleOf(j) + " " + model.ids[j]));
  const first = [], rest = [];
  for (let j = 0; j < model.count && first.length < SUGGESTIONS; j++) {
    const text = searchable[j];
    if (history.has(j) || !words.every((word) => text.includes(word))) continue;
    if (text.startsWith(words[0])) first.push(j);
    else if (rest.length < SUGGESTIONS) rest.push(j);
  }
  return first.concat(rest).slice(0, SUGGESTIONS);
}

const search = byId("search"), suggestions = byId("suggestions");
let active = -1, offered = [];

function suggest() {
  offered = matches(search.value);
  active = offered.length ? 0 : -1;
  const nothing = search.value.trim() && !offered.length;
  byId("found").textContent = nothing ? "No matches." : "";
  suggestions.replaceChildren(...offered.map((j, at) => element("li", {
    id: "option-" + at, role: "option", "aria-selected": at === active,
    on: { pointerdown: (event) => { event.preventDefault(); choose(j); } },
  }, shownTitle(j))));
  suggestions.hidden = !offered.length;
  search.setAttribute("aria-expanded", String(offered.length > 0));
  mark();
}

function mark() {
  [...suggestions.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
  if (active >= 0) search.setAttribute("aria-activedescendant", "option-" + active);
  else search.removeAttribute("aria-activedescendant");
}

function choose(j) {
  add(j);
  search.value = "";
  suggest();
  search.focus();
}

search.addEventListener("input", suggest);
search.addEventListener("blur", () => { suggestions.hidden = true; });
search.addEventListener("focus", suggest);
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && offered.length) active = (active + 1) % offered.length;
  else if (event.key === "ArrowUp" && offered.length) active = (active + offered.length - 1) % offered.length;
  else if (event.key === "Enter" && active >= 0) { event.preventDefault(); choose(offered[active]); return; }
  else if (event.key === "Escape") { search.value = ""; suggest(); return; }
  else return;
  event.preventDefault();
  mark();
});

// ---------------------------------------------------------------- what you like

// Where the slider starts: at what "liked" counts as, or just above.
function firstRating() {
  if (!model.rate) return model.liked;
  const [low, high] = model.rate;
  return Math.min(low + Math.ceil((model.liked - low) / model.step - 1e-9) * model.step, high);
}

function add(j) {
  history.set(j, firstRating());
  show();
  byId("news").textContent = titleOf(j) + " was added. The list was updated.";
}

function remove(j) {
  history.delete(j);
  show();
  byId("news").textContent = titleOf(j) + " was removed. The list was updated.";
}

function chosenItem(j) {
  const parts = [element("span", { class: "name" }, shownTitle(j)), element("button", {
    type: "button", class: "quiet", "aria-label": "Remove " + titleOf(j), on: { click: () => remove(j) },
  }, "✕")];
  if (model.rate) {
    const value = element("output", {}, number(history.get(j)));
    const slider = element("input", {
      type: "range", min: model.rate[0], max: model.rate[1], step: model.step, value: history.get(j),
      "aria-label": "Your rating of " + titleOf(j),
      on: { input: () => { history.set(j, Number(slider.value)); value.textContent = number(history.get(j)); lists(); } },
    });
    parts.push(element("span", { class: "rating" }, slider, value));
  }
  return element("li", {}, ...parts);
}

// ---------------------------------------------------------------- lists

let asked = null;  // the item whose reasons are open
let compared = null;  // the item whose likes are shown

function reasons(j) {
  if (!history.size) return element("p", { class: "why" }, "You have not chosen anything yet: this is a popular pick.");
  const found = whyItem(model, history, j).slice(0, 5);
  const largest = Math.max(...found.map(([, much]) => Math.abs(much)), 1e-12);
  if (found.every(([, much]) => Math.abs(much) < 1e-9)) {
    return element("p", { class: "why" }, "Not because of your choices: it is popular with many users.");
  }
  return element("ul", { class: "why" }, ...found.map(([i, much]) => {
    const bar = element("span", { class: much >= 0 ? "bar up" : "bar down", "aria-hidden": "true" });
    bar.style.width = Math.round(90 * Math.abs(much) / largest) + "px";
    const word = much >= 0 ? "pulled it up" : "pushed it down";
    return element("li", {}, bar, shownTitle(i), element("span", { class: "soft" }, " " + word));
  }));
}

function recommendedItem([j, score], top) {
  const shown = model.range ? number(score) : "";
  const bar = element("span", { class: "bar up", "aria-hidden": "true" });
  if (!model.range) bar.style.width = Math.round(64 * Math.max(score, 0) / Math.max(top, 1e-12)) + "px";
  const open = asked === j;
  const why = element("button", {
    type: "button", "aria-expanded": String(open), on: { click: () => { asked = open ? null : j; lists("why-" + j); } },
    id: "why-" + j,
  }, "Why this?");
  const alike = element("button", {
    type: "button", on: { click: () => { compared = j; lists(); byId("alike").scrollIntoView({ block: "nearest" }); } },
  }, "Similar");
  const like = element("button", { type: "button", class: "main", on: { click: () => add(j) } }, "I like this");
  const unlearned = model.rank - model.item_similarity.first <= 0;
  return element("li", {},
    element("span", { class: "line" }, element("span", { class: "name" }, shownTitle(j)),
      model.range ? element("span", { class: "score" }, shown) : element("span", { class: "track" }, bar)),
    element("span", { class: "acts" }, why, unlearned ? null : alike, like),
    open ? reasons(j) : null);
}

function lists(focus) {
  const found = recommend(model, history, HOW_MANY);
  const top = found.length ? found[0][1] : 1;
  byId("recommended").replaceChildren(...found.map((entry) => recommendedItem(entry, top)));
  byId("start").hidden = history.size > 0;
  byId("alike").hidden = compared === null;
  if (compared !== null) {
    const likes = similarItems(model, compared, 6);
    byId("alike-to").replaceChildren("Similar to ", shownTitle(compared));
    byId("alike-list").replaceChildren(...likes.map(([j]) => element("li", {}, element("span", { class: "line" },
      element("span", { class: "name" }, shownTitle(j)),
      element("button", { type: "button", class: "main", on: { click: () => add(j) } }, "I like this")))));
    if (!likes.length) byId("alike-list").replaceChildren(element("li", {}, "No similar items are known."));
  }
  if (focus && byId(focus)) byId(focus).focus();
}

function show() {
  byId("chosen").replaceChildren(...[...history.keys()].map(chosenItem));
  byId("empty").hidden = history.size > 0;
  byId("clear").hidden = history.size === 0;
  lists();
}

byId("clear").addEventListener("click", () => { history.clear(); asked = null; compared = null; show(); search.focus(); });

// ---------------------------------------------------------------- try to send data, which the browser blocks

const OUTSIDE = "discreet-test.invalid";  // .invalid is reserved (RFC 2606): no such host can exist
const WAYS = {
  "a request (fetch)": () => fetch("https://" + OUTSIDE + "/fetch").catch(() => null),
  "a beacon": () => navigator.sendBeacon("https://" + OUTSIDE + "/beacon", "x"),
  "a picture": () => { new Image().src = "https://" + OUTSIDE + "/picture.png"; },
  "a socket": () => { try { new WebSocket("wss://" + OUTSIDE + "/socket"); } catch (error) { return null; } return null; },
  "a form": () => {
    const form = element("form", { action: "https://" + OUTSIDE + "/form", method: "post", hidden: true });
    window.document.body.append(form);
    form.submit();
    form.remove();
  },
};

byId("try").addEventListener("click", async () => {
  const blocked = new Set();
  const watch = (event) => blocked.add(event.blockedURI + " " + event.effectiveDirective);
  window.document.addEventListener("securitypolicyviolation", watch);
  const lines = [];
  for (const [name, act] of Object.entries(WAYS)) {
    const before = blocked.size;
    try { await act(); } catch (error) { /* refused at once */ }
    await new Promise((done) => setTimeout(done, 120));
    lines.push(element("li", {}, name + ": ", element("strong", {}, blocked.size > before ? "blocked by the browser" : "not blocked")));
  }
  window.document.removeEventListener("securitypolicyviolation", watch);
  byId("tried").replaceChildren(...lines);
});

show();
