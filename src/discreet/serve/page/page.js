"use strict";
// User interface: search, choose, and show lists that update immediately. Nothing is stored or sent.
// Every control has a `data-key` that is the same after rendering again, so that focus can be put back where it was.

const documentText = window.document.getElementById("model").textContent;
const model = unpackModel(JSON.parse(documentText));
const choices = new Map();  // position of an item -> index of an opinion
const HOW_MANY = 10, SUGGESTIONS = 8, SIMILAR = 6;
const byId = (id) => window.document.getElementById(id);
const NOUN = window.document.querySelector("main").dataset.noun;

function element(name, attributes, ...inner) {
  const made = window.document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [kind, act] of Object.entries(value)) made.addEventListener(kind, act);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inner.filter((part) => part !== null));
  return made;
}

const wholeTitle = (j) => (model.titles ? model.titles[j] : String(model.ids[j]));
const number = (value) => (Math.round(value * 100) / 100).toLocaleString("en", { maximumFractionDigits: 2 });
const plain = (text) => text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase();

// "Title (1995) · Drama" as its title, and the rest: the year and what follows " · ".
function splitTitle(j) {
  const [first, ...rest] = wholeTitle(j).split(" · ");
  const year = /^(.+) \((\d{4})\)$/.exec(first);
  return year ? [year[1], [year[2], ...rest].join(" · ")] : [first, rest.join(" · ")];
}

const titleOf = (j) => splitTitle(j)[0];

function shownTitle(j) {
  const [title, rest] = splitTitle(j);
  return element("bdi", { class: "name" }, element("strong", {}, title),
    rest ? element("span", { class: "soft small" }, " " + rest) : null);
}

function button(word, j, key, act, more) {
  return element("button", { type: "button", "aria-label": word + " " + titleOf(j), "data-key": key, on: { click: act }, ...more }, word);
}

// ---------------------------------------------------------------- opinions

// Pairs of words and rating, best first. A null rating hides an item and does not count.
function listOpinions() {
  if (model.range) {
    const [low, high] = model.range;
    const words = ["Liked it a lot", "Liked it", "It was OK", "Disliked it", "Disliked it a lot"];
    const onGrid = (share) => low + Math.round(share * (high - low) / model.step) * model.step;
    return words.map((word, at) => [onGrid(1 - at / 4), word]).map(([value, word]) => [`${word} (${number(value)})`, value]);
  }
  const found = [["Liked it", model.liked]];
  if (model.rate && model.numbers.like_threshold !== null) {
    const [low, high] = model.rate;
    const enough = low + Math.ceil((model.numbers.like_threshold - low) / model.step - 1e-9) * model.step;
    if (enough < high) found.splice(0, 1, ["Liked it a lot", high], ["Liked it", enough]);
  }
  return [...found, ["Not counted, only hidden", null]];
}

const OPINIONS = listOpinions();
const rated = OPINIONS.map(([, value]) => (value === null ? -Infinity : value));
const LIKE = rated.reduce((best, value, at) => (Math.abs(value - model.liked) < Math.abs(rated[best] - model.liked) ? at : best), 0);
const DISLIKE = OPINIONS.length - (model.range ? 2 : 1);
const DISLIKE_WORD = model.range ? "Dislike" : "Hide";

function ratings() {
  const counted = [...choices].filter(([, opinion]) => OPINIONS[opinion][1] !== null);
  return new Map(counted.map(([j, opinion]) => [j, OPINIONS[opinion][1]]));
}

function choose(j, opinion) {
  choices.set(j, opinion);
  window.document.body.classList.add("begun");
  showAll(titleOf(j) + (OPINIONS[opinion][1] === null ? " is hidden." : " was added."));
}

function remove(j) {
  choices.delete(j);
  showAll(titleOf(j) + " was removed.");
}

// ---------------------------------------------------------------- search

let searchable = null;

// Items that match all words, and how many of the matches are among the choices.
function matches(query) {
  const words = plain(query).split(/\s+/).filter(Boolean);
  const first = [], rest = [], known = [];
  if (!words.length) return { offered: [], known };
  if (!searchable) searchable = Array.from({ length: model.count }, (_, j) => plain(wholeTitle(j) + " " + model.ids[j]));
  for (let j = 0; j < model.count && first.length < SUGGESTIONS; j++) {
    const text = searchable[j];
    if (!words.every((word) => text.includes(word))) continue;
    if (choices.has(j)) known.push(j);
    else if (text.startsWith(words[0])) first.push(j);
    else if (rest.length < SUGGESTIONS) rest.push(j);
  }
  return { offered: first.concat(rest).slice(0, SUGGESTIONS), known };
}

const search = byId("search"), suggestions = byId("suggestions");
let active = -1, offered = [];

function suggest() {
  const query = search.value.trim(), found = matches(query);
  offered = found.offered;
  active = offered.length ? 0 : -1;
  let message = "";
  if (query && found.known.length && !offered.length) message = titleOf(found.known[0]) + " is already among your choices.";
  else if (query && !offered.length) message = `No matches for “${query}”.`;
  byId("found").textContent = message;
  suggestions.replaceChildren(...offered.map((j, at) => element("li", {
    id: "option-" + at, role: "option", "aria-selected": String(at === active),
    on: { pointerdown: (event) => { event.preventDefault(); addFound(j); } },
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

function closeSuggestions() {
  suggestions.hidden = true;
  search.setAttribute("aria-expanded", "false");
  search.removeAttribute("aria-activedescendant");
}

function addFound(j) {
  search.value = "";
  choose(j, LIKE);
  suggest();
}

search.addEventListener("input", suggest);
search.addEventListener("blur", closeSuggestions);
search.addEventListener("focus", suggest);
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" && offered.length) active = (active + 1) % offered.length;
  else if (event.key === "ArrowUp" && offered.length) active = (active + offered.length - 1) % offered.length;
  else if (event.key === "Enter" && active >= 0) { event.preventDefault(); addFound(offered[active]); return; }
  else if (event.key === "Escape") { search.value = ""; suggest(); return; }
  else return;
  event.preventDefault();
  mark();
});
byId("add").addEventListener("pointerdown", (event) => event.preventDefault());  // so that the search keeps its focus
byId("add").addEventListener("click", () => {
  if (offered.length) addFound(offered[active]);
  else if (!search.value.trim()) byId("found").textContent = `Type a part of a title, then choose one of the ${NOUN} found.`;
});

// ---------------------------------------------------------------- choices

function chosenItem(j) {
  const select = element("select", {
    "aria-label": "Your opinion of " + titleOf(j), "data-key": "opinion-" + j,
    on: { change: () => { choices.set(j, Number(select.value)); showAll(`${titleOf(j)}: ${OPINIONS[select.value][0]}.`); } },
  }, ...OPINIONS.map(([words], at) => element("option", { value: at, selected: at === choices.get(j) }, words)));
  return element("li", {}, shownTitle(j), element("span", { class: "acts" }, select, button("Remove", j, "remove-" + j, () => remove(j))));
}

byId("clear").addEventListener("click", () => {
  choices.clear();
  opened = null;
  window.document.body.classList.remove("begun");
  showAll("Your choices were cleared.");
  search.focus();
});

// ---------------------------------------------------------------- lists

let opened = null;  // {item, kind: "why" or "similar", place}: the panel that is open in the list

function toggle(j, kind, place) {
  const same = opened && opened.item === j && opened.kind === kind;
  opened = same ? null : { item: j, kind, place };
  showAll("");
}

function closeButton(j, kind) {
  return button("Close", j, "close", () => {
    opened = null;
    showAll("");
    focusOn(`${kind}-${j}`);
  });
}

function howMuch(much, largest) {
  const share = Math.abs(much) / largest;
  const degree = share >= 2 / 3 ? " a lot" : share < 1 / 3 ? " a little" : "";
  return (much >= 0 ? " moved it up" : " moved it down") + degree;
}

function reasons(j) {
  const own = ratings();
  const found = explainItem(model, own, j).filter(([, much]) => Math.abs(much) > 1e-9);
  if (!own.size) return element("p", {}, "You have not chosen anything yet: this is popular with many users.");
  if (!found.length) return element("p", {}, "Not because of your choices: it is popular with many users.");
  const largest = Math.max(...found.map(([, much]) => Math.abs(much)));
  const strongest = found.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  return element("ul", { role: "list" }, ...strongest.map(([i, much]) =>
    element("li", {}, shownTitle(i), howMuch(much, largest))));
}

function similar(j) {
  const likes = similarItems(model, j, SIMILAR);
  if (!likes.length) return element("p", {}, `No similar ${NOUN} are known.`);
  return element("ul", { role: "list" }, ...likes.map(([i]) => {
    const chosen = choices.has(i);
    const act = () => (chosen ? remove(i) : choose(i, LIKE));
    return element("li", { class: "line" }, shownTitle(i), button("Like", i, "also-" + i, act, { "aria-pressed": String(chosen) }));
  }));
}

function panel(j) {
  const { kind } = opened;
  const head = element("h3", { id: "panel-title" }, kind === "why" ? `Why ${titleOf(j)}?` : "Similar to " + titleOf(j));
  return element("div", {
    class: "panel", role: "group", "aria-labelledby": "panel-title", id: "panel",
    on: { keydown: (event) => { if (event.key === "Escape") byId("panel").querySelector("[data-key=close]").click(); } },
  }, head, kind === "why" ? reasons(j) : similar(j), closeButton(j, kind));
}

function recommendedItem([j, score], place) {
  const open = opened && opened.item === j;
  const disclosure = (word, kind) => button(word, j, `${kind}-${j}`, () => toggle(j, kind, place), {
    "aria-expanded": String(Boolean(open && opened.kind === kind)), "aria-controls": open && opened.kind === kind ? "panel" : null,
  });
  const comparable = model.rank - model.item_similarity.first > 0;
  let note = null;
  if (score === null) note = "no longer among the first ten";
  else if (model.range) note = "predicted rating " + number(score);
  return element("li", {}, shownTitle(j), note ? element("span", { class: "soft small" }, " · " + note) : null,
    element("span", { class: "acts" },
      button("Like", j, "like-" + j, () => choose(j, LIKE)),
      button(DISLIKE_WORD, j, "dislike-" + j, () => choose(j, DISLIKE)),
      disclosure("Why?", "why"), comparable ? disclosure("Similar", "similar") : null),
    open ? panel(j) : null);
}

// An item whose panel is open stays where it is, even if it is no longer recommended.
function listed() {
  const found = recommend(model, ratings(), HOW_MANY, choices);
  if (opened && choices.has(opened.item)) opened = null;
  if (opened && !found.some(([j]) => j === opened.item)) found.splice(opened.place, 0, [opened.item, null]);
  return found;
}

// ---------------------------------------------------------------- rendering and focus

const controls = () => [...window.document.querySelectorAll("[data-key]")];

function focusOn(key) {
  const found = controls().find((one) => one.dataset.key === key);
  if (found) found.focus({ preventScroll: true });
  return Boolean(found);
}

// Where the focus is: its key, and the keys of its kind ("like", "remove") in order.
function noteFocus() {
  const key = window.document.activeElement ? window.document.activeElement.dataset.key : undefined;
  if (!key) return null;
  const kind = key.replace(/\d+$/, "");
  return { key, kind, place: sameKind(kind).indexOf(key) };
}

const sameKind = (kind) => controls().map((one) => one.dataset.key).filter((key) => key.replace(/\d+$/, "") === kind);

// Put the focus on the same control, else on the one of its kind that took its place, else on the list or the search.
function restoreFocus(noted) {
  if (!noted || focusOn(noted.key)) return;
  const left = sameKind(noted.kind);
  if (left.length) focusOn(left[Math.min(noted.place, left.length - 1)]);
  else (noted.kind === "remove-" ? search : byId("h-list")).focus({ preventScroll: true });
}

function showAll(message) {
  const noted = noteFocus(), found = listed();
  byId("recommended").replaceChildren(...found.map(recommendedItem));
  byId("none").hidden = found.length > 0;
  byId("start").hidden = choices.size > 0;
  byId("chosen").replaceChildren(...[...choices.keys()].reverse().map(chosenItem));
  byId("choices").hidden = choices.size === 0;
  byId("how-many").textContent = `Chosen ${NOUN}: ${choices.size}`;
  byId("names").textContent = [...choices.keys()].reverse().map(titleOf).join(", ");
  restoreFocus(noted);
  if (message) byId("news").textContent = message + " The list was updated.";
}

byId("choices").open = window.matchMedia("(min-width: 761px)").matches;  // closed on phones, so that the list is in view

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

showAll("");
