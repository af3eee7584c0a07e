"use strict";
// The map of the items: a canvas, because twenty thousand SVG circles are slow; pointing, touching, keys and a search
// all choose an item, and what is chosen is also written below the map, where screen readers announce it.
(() => {
  const source = document.getElementById("items");
  const canvas = document.getElementById("plane");
  if (!source || !canvas) return;
  const items = JSON.parse(source.textContent);
  const n = items.titles.length;
  const tip = document.getElementById("tip");
  const chosenLine = document.getElementById("chosen");
  const find = document.getElementById("find");
  const matchLine = document.getElementById("matches");
  const folded = items.titles.map((t) => t.toLowerCase());
  let width = 0, height = 0, chosen = -1, matches = null;

  const xOf = (i) => 14 + (items.x[i] / items.grid) * (width - 28);
  const yOf = (i) => 14 + (1 - items.y[i] / items.grid) * (height - 28);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw() {
    width = canvas.parentElement.clientWidth;
    height = Math.round(Math.max(320, Math.min(width * 0.62, 720)));
    const ratio = Math.max(1, window.devicePixelRatio || 1);
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const ink = color("--ink"), accent = color("--c0"), warm = color("--c1"), paper = color("--paper");
    const radius = n > 5000 ? 1.6 : n > 1000 ? 2.4 : 3.4;
    for (let i = 0; i < n; i++) {
      const hit = matches !== null && matches.has(i);
      pen.globalAlpha = hit ? 1 : (matches !== null ? 0.15 : 0.22 + 0.0078 * items.length[i]);
      pen.fillStyle = hit ? warm : accent;
      pen.beginPath();
      pen.arc(xOf(i), yOf(i), hit ? radius + 1.5 : radius, 0, 6.2832);
      pen.fill();
    }
    pen.globalAlpha = 1;
    if (matches === null) label(pen, ink, paper);
    if (chosen >= 0) {
      if (items.alike) for (const j of items.alike[chosen]) if (j >= 0) {
        pen.strokeStyle = warm;
        pen.lineWidth = 1.2;
        pen.beginPath();
        pen.moveTo(xOf(chosen), yOf(chosen));
        pen.lineTo(xOf(j), yOf(j));
        pen.stroke();
      }
      pen.strokeStyle = ink;
      pen.lineWidth = 2.5;
      pen.beginPath();
      pen.arc(xOf(chosen), yOf(chosen), radius + 4, 0, 6.2832);
      pen.stroke();
    }
  }

  // Titles of the items with the largest norms, as many as fit: landmarks.
  const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => items.length[b] - items.length[a]).slice(0, 400);
  function label(pen, ink, paper) {
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const taken = [];
    const most = width < 500 ? 7 : 16;
    for (const i of order) {
      if (taken.length >= most) break;
      let words = items.titles[i].split(" · ")[0];
      if (words.length > 28) words = words.slice(0, 27) + "…";
      const w = pen.measureText(words).width, x = xOf(i) + 7, y = yOf(i);
      const box = [x - 10, y - 24, x + w + 10, y + 24];
      if (x + w > width - 4 || y < 10 || y > height - 10) continue;
      if (taken.some((t) => box[0] < t[2] && t[0] < box[2] && box[1] < t[3] && t[1] < box[3])) continue;
      taken.push(box);
      pen.strokeStyle = paper;
      pen.lineWidth = 4;
      pen.strokeText(words, x, y);
      pen.fillStyle = ink;
      pen.fillText(words, x, y);
    }
  }

  function choose(i, show) {
    chosen = i;
    if (i < 0) {
      tip.hidden = true;
    } else {
      const alike = items.alike ? items.alike[i].filter((j) => j >= 0).map((j) => items.titles[j]) : [];
      chosenLine.textContent = items.titles[i] + (alike.length ? " — most alike: " + alike.join("; ") : "");
      tip.textContent = items.titles[i];
      tip.hidden = !show;
      const x = xOf(i), y = yOf(i);
      tip.style.left = Math.max(0, Math.min(x + 10, width - tip.offsetWidth)) + "px";
      tip.style.top = (y > tip.offsetHeight + 14 ? y - tip.offsetHeight - 12 : y + 12) + "px";
    }
    draw();
  }

  function nearest(x, y, within) {
    let best = -1, least = within * within;
    for (let i = 0; i < n; i++) {
      const d = (xOf(i) - x) ** 2 + (yOf(i) - y) ** 2;
      if (d < least) { least = d; best = i; }
    }
    return best;
  }

  function point(event) {
    const box = canvas.getBoundingClientRect();
    const i = nearest(event.clientX - box.left, event.clientY - box.top, event.pointerType === "touch" ? 40 : 22);
    if (i !== chosen && i >= 0) choose(i, true);
    else if (i < 0) tip.hidden = true;
    else tip.hidden = false;
  }
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("blur", () => { tip.hidden = true; });
  canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) choose(chosen < 0 ? order[0] : chosen, true); });

  const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { choose(-1); return; }
    const way = ways[event.key];
    if (!way) return;
    event.preventDefault();
    if (chosen < 0) { choose(order[0], true); return; }
    // the nearest item within 45° of the arrow
    const x = xOf(chosen), y = yOf(chosen);
    let best = -1, least = Infinity;
    for (let i = 0; i < n; i++) {
      const dx = xOf(i) - x, dy = yOf(i) - y, along = dx * way[0] + dy * way[1];
      if (i === chosen || along <= 0 || Math.abs(dx * way[1]) + Math.abs(dy * way[0]) > along) continue;
      const d = dx * dx + dy * dy;
      if (d < least) { least = d; best = i; }
    }
    if (best >= 0) choose(best, true);
  });

  function search() {
    const wanted = find.value.trim().toLowerCase();
    if (!wanted) {
      matches = null;
      matchLine.textContent = "";
    } else {
      matches = new Set();
      for (let i = 0; i < n; i++) if (folded[i].includes(wanted)) matches.add(i);
      matchLine.textContent = matches.size === 1 ? "1 item" : matches.size.toLocaleString("en") + " items";
    }
    draw();
  }
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || matches === null || matches.size === 0) return;
    const list = [...matches], at = list.indexOf(chosen);
    choose(list[(at + 1) % list.length], true);
  });

  new ResizeObserver(() => { if (canvas.parentElement.clientWidth !== width) choose(chosen, !tip.hidden); })
    .observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  matchMedia("print").addEventListener("change", draw);
  draw();
})();
