// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const facts = { cells: data.facts.cells || [], types: data.facts.types || [], flags: data.facts.flags || [] };
  const links = data.links || [], nodes = data.nodes || [];
  const byName = (list, key) => new Map(list.map((f) => [f[key], f]));
  const cells = byName(facts.cells, "id"), types = byName(facts.types, "name"), flags = byName(facts.flags, "name");
  const $ = (id) => document.getElementById(id);

  // el makes an element: el("li", {class: "x", onclick: f}, "text", other).
  function el(tag, props, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(props || {})) {
      if (v === undefined || v === false) continue;
      if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
      else e.setAttribute(k, v === true ? "" : v);
    }
    e.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false && c !== ""));
    return e;
  }

  // ---- the drawing: pan, zoom, boxes -------------------------------------

  const paper = $("paper"), svg = paper.querySelector("svg");
  const size = svg.viewBox.baseVal, width = size.width, height = size.height;
  const view = document.createElementNS("http://www.w3.org/2000/svg", "g");
  view.id = "view";
  view.append(...svg.children);
  svg.append(view);
  for (const a of ["viewBox", "width", "height"]) svg.removeAttribute(a);
  svg.setAttribute("role", "group");

  const at = { x: 0, y: 0, k: 1 };
  let fitted = true;

  function move(x, y, k) {
    Object.assign(at, { x, y, k });
    view.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    view.classList.toggle("far", k < 0.5);
  }
  function fit() {
    const w = paper.clientWidth, h = paper.clientHeight - 48; // less the tools
    if (!w || h <= 0) return;
    const k = Math.min(w / width, h / height, 1.6) * 0.98;
    move((w - width * k) / 2, Math.max(0, (h - height * k) / 2), k);
    fitted = true;
  }
  function zoom(factor, x = paper.clientWidth / 2, y = paper.clientHeight / 2) {
    const k = Math.min(4, Math.max(0.05, at.k * factor));
    move(x - ((x - at.x) * k) / at.k, y - ((y - at.y) * k) / at.k, k);
    fitted = false;
  }
  // glide brings a box to the middle, large enough to be read. The transform
  // is a style for the time of it, because attributes do not glide.
  function glide(box) {
    const r = box.getBoundingClientRect(), p = paper.getBoundingClientRect();
    if (!p.width) return;
    const k = Math.max(at.k, 0.85);
    const cx = (r.left + r.width / 2 - p.left - at.x) / at.k, cy = (r.top + r.height / 2 - p.top - at.y) / at.k;
    const inside = r.left > p.left && r.right < p.right && r.top > p.top && r.bottom < p.bottom;
    if (inside && k === at.k) return;
    view.classList.add("gliding");
    view.style.transform = `translate(${at.x}px, ${at.y}px) scale(${at.k})`;
    void view.getBoundingClientRect();
    move(p.width / 2 - cx * k, p.height / 2 - cy * k, k);
    view.style.transform = `translate(${at.x}px, ${at.y}px) scale(${at.k})`;
    fitted = false;
    setTimeout(still, 300);
  }
  function still() {
    view.classList.remove("gliding");
    view.style.transform = "";
  }

  const fingers = new Map();
  let dragged = false;
  paper.addEventListener("pointerdown", (e) => {
    if (e.button) return;
    still();
    fingers.set(e.pointerId, e);
    dragged = false;
  });
  paper.addEventListener("pointermove", (e) => {
    const before = fingers.get(e.pointerId);
    if (!before) return;
    const dx = e.clientX - before.clientX, dy = e.clientY - before.clientY;
    if (!dragged && Math.hypot(dx, dy) < 4) return;
    if (!dragged) {
      dragged = true;
      paper.setPointerCapture(e.pointerId);
      paper.classList.add("moving");
    }
    if (fingers.size === 2) {
      const other = [...fingers.values()].find((f) => f.pointerId !== e.pointerId);
      const spread = (f) => Math.hypot(f.clientX - other.clientX, f.clientY - other.clientY);
      const r = paper.getBoundingClientRect();
      zoom(spread(e) / Math.max(1, spread(before)), (e.clientX + other.clientX) / 2 - r.left, (e.clientY + other.clientY) / 2 - r.top);
    } else {
      move(at.x + dx, at.y + dy, at.k);
      fitted = false;
    }
    fingers.set(e.pointerId, e);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    paper.addEventListener(name, (e) => {
      fingers.delete(e.pointerId);
      paper.classList.remove("moving");
    });
  }
  paper.addEventListener("wheel", (e) => {
    e.preventDefault();
    still();
    const r = paper.getBoundingClientRect();
    zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e.clientX - r.left, e.clientY - r.top);
  }, { passive: false });
  $("zoom-in").addEventListener("click", () => zoom(1.3));
  $("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
  $("zoom-fit").addEventListener("click", fit);
  new ResizeObserver(() => fitted && fit()).observe(paper);

  const cellOfNode = new Map(nodes.map((n) => [`node-${n.id}`, n.cell]));
  const boxes = [...view.querySelectorAll(".cell, .node[id^='node-']")];
  const cellOf = (box) => cellOfNode.get(box.id) || box.id.replace(/^cell-/, "");
  const boxesOf = new Map();
  for (const box of boxes) {
    const cell = cellOf(box), f = cells.get(cell);
    if (!boxesOf.has(cell)) boxesOf.set(cell, []);
    boxesOf.get(cell).push(box);
    box.setAttribute("role", "button");
    box.setAttribute("tabindex", "-1");
    box.setAttribute("aria-label", f ? `${cell}${f.title ? ": " + f.title : ""}${f.enabled ? "" : ", off: " + f.reason}` : cell);
  }
  // lines are those between nodes, in a full drawing.
  const lines = [...view.querySelectorAll(".link[id^='line-']")].map((line) => {
    const [, from, to] = line.id.split("-");
    return { line, ends: [`node-${from}`, `node-${to}`].map((id) => $(id) && cellOf($(id))), type: line.querySelector("title").textContent };
  });
  // One box is a stop of the Tab key; arrows go from box to box.
  if (boxes.length) boxes[0].setAttribute("tabindex", "0");
  function focusBox(box) {
    for (const b of boxes) b.setAttribute("tabindex", b === box ? "0" : "-1");
    box.focus({ preventScroll: true });
    glide(box);
  }
  function neighbour(box, key) {
    const middle = (b) => {
      const r = b.getBoundingClientRect();
      return [r.left + r.width / 2, r.top + r.height / 2];
    };
    const [x, y] = middle(box);
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    let best = null, least = Infinity;
    for (const b of boxes) {
      const [bx, by] = middle(b), along = (bx - x) * way[0] + (by - y) * way[1];
      const aside = Math.abs((bx - x) * way[1]) + Math.abs((by - y) * way[0]);
      if (b !== box && along > 1 && along + 2 * aside < least) [best, least] = [b, along + 2 * aside];
    }
    return best;
  }
  paper.addEventListener("keydown", (e) => {
    const box = e.target.closest(".cell, .node");
    if (!box) return;
    if (e.key.startsWith("Arrow")) {
      const next = neighbour(box, e.key);
      if (next) focusBox(next);
      e.preventDefault();
    } else if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      select("cell", cellOf(box), nodeName(box));
    }
  });
  paper.addEventListener("click", (e) => {
    if (dragged) return;
    const words = e.target.closest("text"), typed = words && typeOnPaper(words.textContent);
    const box = e.target.closest(".cell, .node"), link = e.target.closest(".link");
    if (typed) select("type", typed);
    else if (box) select("cell", cellOf(box), nodeName(box));
    else if (link && link.id.startsWith("line-")) select("type", link.querySelector("title").textContent);
    else if (link) select("link", link.id);
    else select();
  });
  const nodeName = (box) => (nodes.find((n) => `node-${n.id}` === box.id) || {}).name;
  // typeOnPaper is the type that words in the drawing stand for.
  const onPaper = new Map(facts.types.map((t) => [t.name.replace(/^.* in group /, "group "), t.name]));
  function typeOnPaper(text) {
    return onPaper.get(text.trim().replace(/^[←→] /, "").replace(/ (for|of) \d+ cells$/, ""));
  }

  // ---- what is selected ----------------------------------------------------

  // select shows a cell, a type, a flag or a link; without arguments, nothing.
  // part is the name of a function of the cell.
  function select(kind = "", name = "", part = "", quiet = false) {
    const about = { cell: cells, type: types, flag: flags }[kind];
    const f = kind === "link" ? links[Number(name.replace("link-", ""))] : about && about.get(name);
    $("panel").replaceChildren(...(f ? { cell: aboutCell, type: aboutType, flag: aboutFlag, link: aboutLink }[kind](f, part) : overview()));
    $("panel").scrollTop = 0;
    const named = $("panel").querySelector(".named");
    if (named) named.scrollIntoView({ block: "center" });
    light(f ? kind : "", f);
    for (const row of document.querySelectorAll("tr[data-step]")) {
      row.classList.toggle("picked", kind === "cell" && row.querySelector(".ref").dataset.cell === name);
    }
    const row = document.querySelector("tr.picked");
    if (row && !$("order").hidden) row.scrollIntoView({ block: "nearest" });
    if (!quiet) history.replaceState(null, "", f && kind !== "link" ? `#${kind}=${encodeURIComponent(name)}` : location.pathname + location.search);
  }

  // light marks the boxes and lines that have to do with what is selected.
  function light(kind, f) {
    const picked = new Set(), gives = new Set(), takes = new Set();
    let near = () => false;
    if (kind === "cell") {
      picked.add(f.id);
      for (const n of f.needs || []) for (const c of [...(n.from || []), ...(n.off || [])]) gives.add(c);
      for (const p of f.provides || []) for (const u of p.users || []) takes.add(u.cell);
      near = (l) => l.from === f.id || l.to === f.id;
    } else if (kind === "type") {
      for (const p of [...(f.providers || []), ...(f.decorators || [])]) gives.add(p.cell);
      for (const u of f.users || []) takes.add(u.cell);
      near = (l) => (l.types || []).includes(f.name);
    } else if (kind === "flag") {
      picked.add(f.cell);
      for (const s of f.switches || []) takes.add(s.cell);
    } else if (kind === "link") {
      gives.add(f.from);
      takes.add(f.to);
      near = (l) => l === f;
    }
    const on = kind !== "" && [...picked, ...gives, ...takes].some((c) => boxesOf.has(c));
    view.classList.toggle("chosen", on);
    for (const box of boxes) {
      const c = cellOf(box);
      box.classList.toggle("picked", picked.has(c));
      box.classList.toggle("gives", gives.has(c) && !picked.has(c));
      box.classList.toggle("takes", takes.has(c) && !picked.has(c) && !gives.has(c));
      box.classList.toggle("near", picked.has(c) || gives.has(c) || takes.has(c));
    }
    links.forEach((l, i) => {
      const line = $(`link-${i}`);
      if (line) line.classList.toggle("near", on && near(l));
    });
    for (const { line, ends, type } of lines) {
      line.classList.toggle("near", on && (kind === "type" ? type === f.name : ends.some((c) => picked.has(c))));
    }
  }

  // show selects and brings what was selected into sight.
  function show(kind, name, part) {
    select(kind, name, part);
    const f = { cell: cells, type: types, flag: flags }[kind].get(name);
    const cell = kind === "type" ? ((f.providers || [])[0] || {}).cell : kind === "flag" ? f.cell : name;
    const those = boxesOf.get(cell) || [], box = those.find((b) => part && nodeName(b) === part) || those[0];
    if (box && !$("drawing").hidden) glide(box);
  }

  // ---- the panel -------------------------------------------------------------

  const section = (title, ...children) => {
    const content = children.flat().filter(Boolean);
    return content.length ? [el("h3", {}, title), ...content] : [];
  };
  const list = (items) => (items.length ? el("ul", {}, items) : undefined);
  const note = (...text) => el("span", { class: "note" }, ...text);
  function ref(kind, name, text) {
    const off = kind === "cell" && cells.has(name) && !cells.get(name).enabled;
    if (!{ cell: cells, type: types, flag: flags }[kind].has(name)) return el("span", {}, text || name);
    return el("button", { class: `ref${kind === "cell" ? "" : " code"}${off ? " off" : ""}`, onclick: () => show(kind, name) }, text || name);
  }
  // refs are references with commas between.
  const refs = (kind, names) => names.flatMap((n, i) => (i ? [", ", ref(kind, n)] : [ref(kind, n)]));
  const badge = (kind, text) => el("span", { class: `badge ${kind}` }, text || kind);
  const head = (kind, name, ...more) => [
    el("button", { class: "close", "aria-label": "Close", title: "Close (Esc)", onclick: () => select() }, "×"),
    el("p", { class: "kind" }, kind),
    el("h2", {}, name, ...more),
  ];

  function aboutCell(f, part) {
    const state = f.health ? badge(f.health.toLowerCase(), f.health) : badge(f.enabled ? "on" : "off");
    const steps = f.starts || [];
    return [
      ...head(f.term ? `cell of the term ${f.term}` : "cell of the process", f.id, state),
      f.title && el("p", { class: "title" }, f.title),
      !f.enabled && el("p", { class: "why-off" }, `Off: ${f.reason}`),
      f.replaces && el("p", { class: "note" }, `Stands in the place of ${f.replaces}.`),
      ...section("Conditions", list((f.conditions || []).map((c) => condition(c, f.id)))),
      ...section("Provides", list((f.provides || []).map((p) => provided(p, f.id, part)))),
      ...section("Needs", list((f.needs || []).map((n) => needed(n, f.id)))),
      ...section("Without it", list([
        ...(f.breaks || []).map((d) => el("li", {}, ref("cell", d.cell), note(" breaks: it needs "), ref("type", d.type), ...(d.of === f.id ? [] : [note(" of "), ref("cell", d.of)]))),
        ...(f.lacks || []).map((d) => el("li", {}, ref("cell", d.cell), note(" goes on without "), ref("type", d.type))),
      ])),
      ...section("Starts", list(steps.map((s) => el("li", { class: part && s.step.endsWith("-" + part) && "named" },
        `${s.place} of ${s.of} in the ${s.term ? "term " + s.term : "process"} `, note(s.step + (s.nanos ? `, took ${took(s.nanos)}` : "")),
        list(byReason(s.after || []).map(([reason, ids]) => el("li", {}, note(`after ${ids.join(", ")}${reason && ": " + reason}`)))))))),
      ...section("Flags", list((f.options || []).map(option))),
      ...section("Around it", list([
        f.parent && el("li", {}, note("nested in "), ref("cell", f.parent)),
        (f.nested || []).length > 0 && el("li", {}, note("holds "), ...refs("cell", f.nested)),
        f.declared && el("li", {}, note("declared at "), el("code", {}, f.declared)),
      ].filter(Boolean))),
    ].filter(Boolean);
  }

  // byReason puts the steps that come earlier for one reason together.
  function byReason(after) {
    const groups = new Map();
    for (const a of after) groups.set(a.reason || "", [...(groups.get(a.reason || "") || []), a.step]);
    return [...groups];
  }

  function condition(c, cell) {
    return el("li", {}, badge(c.holds ? "on" : "off", c.holds ? "holds" : "fails"), ` ${c.name} `,
      ...(c.flags || []).flatMap((n) => [ref("flag", n, "--" + n), " "]),
      c.cell !== cell && note("asked by ", ref("cell", c.cell)));
  }

  const scopes = { "private": "private", "per module": "one per cell", lasting: "lasts from term to term" };
  function provided(p, cell, part) {
    const how = { config: "filled from flags", decorator: `changed by ${p.by}`, constructor: `from ${p.by}` }[p.kind] || "";
    const users = [...new Set((p.users || []).filter((u) => u.cell !== cell).map((u) => u.cell))];
    const more = [how, scopes[p.scope], p.unused && p.kind !== "config" && "never built: nobody needs it"].filter(Boolean).join(", ");
    return el("li", { class: part && part === p.by && "named" }, ref("type", p.type), " ", note(more),
      users.length > 0 && el("ul", {}, el("li", {}, note("needed by "), ...refs("cell", users))));
  }

  function needed(n, cell) {
    const from = (n.from || []).filter((c) => c !== cell);
    const own = (n.from || []).includes(cell);
    return el("li", {}, ref("type", n.type), " ",
      from.length ? note("from ", ...refs("cell", from)) : note(own ? "of its own" : "from nobody"),
      n.optional && note(", optional"),
      (n.off || []).length > 0 && note("; off: ", ...refs("cell", n.off)));
  }

  function option(o) {
    const value = o.ignored ? "accepted and ignored" : o.source ? `${o.value || '""'}, from ${o.source}` : `default ${o.default || '""'}`;
    return el("li", {}, ref("flag", o.name, "--" + o.name), " ", note(`${o.type}, ${value}`), o.usage && el("div", { class: "note" }, o.usage));
  }

  function user(u) {
    return el("li", {}, ref("cell", u.cell), " ", note(u.by, u.through && `, as changed by ${u.through}`, u.optional && ", goes on without it", u.off && ", off"));
  }

  function aboutType(f) {
    const maker = (p) => el("li", {}, ref("cell", p.cell), " ",
      note([p.kind === "config" ? "filled from flags" : p.kind === "builtin" ? "for every cell" : p.by, scopes[p.scope], p.off && p.kind !== "config" && `off: ${p.off}`].filter(Boolean).join(", ")),
      p.declared && el("div", {}, el("code", { class: "note" }, p.declared)));
    return [
      ...head("type", el("span", { class: "code" }, f.name)),
      f.full !== f.name && el("p", { class: "title code" }, f.full),
      ...section("Provided by", list((f.providers || []).map(maker)) || note("nobody")),
      ...section("Changed by", list((f.decorators || []).map(maker))),
      ...section("Needed by", list((f.users || []).map(user)) || note("nobody")),
    ].filter(Boolean);
  }

  function aboutFlag(f) {
    return [
      ...head("flag", el("span", { class: "code" }, "--" + f.name)),
      f.usage && el("p", { class: "title" }, f.usage),
      ...section("Value", list([
        el("li", {}, note("type "), el("code", {}, f.type)),
        el("li", {}, note("default "), el("code", {}, f.default || '""')),
        f.source && el("li", {}, note("set to "), el("code", {}, f.value || '""'), note(` by ${f.source}`)),
        f.ignored && el("li", {}, note("accepted and ignored: its cell was replaced")),
      ].filter(Boolean))),
      ...section("Belongs to", list([el("li", {}, ref("cell", f.cell))])),
      ...section("Conditions on it", list((f.conditions || []).map((c) => condition(c, "")))),
      ...section("Switches", list((f.switches || []).map((s) => el("li", {}, badge(s.enabled ? "on" : "off"), " ", ref("cell", s.cell), s.within && note(" with ", ref("cell", s.within)))))),
    ].filter(Boolean);
  }

  function aboutLink(l) {
    if (l.enters) return [...head("entry", l.from), el("p", { class: "title" }, `Enters the term ${l.enters}: its cells are built and started afresh each time.`)];
    return [
      ...head(l.off ? "would need, if both were on" : l.optional ? "needs, if there is one" : "needs", `${l.from} → ${l.to}`),
      ...section("Provided by", list([el("li", {}, ref("cell", l.from))])),
      ...section("Needed by", list([el("li", {}, ref("cell", l.to))])),
      ...section("Types", list((l.types || []).map((t) => el("li", {}, ref("type", t))))),
    ];
  }

  function overview() {
    const off = facts.cells.filter((f) => !f.enabled), bad = facts.cells.filter((f) => f.health === "Degraded");
    const terms = facts.cells.some((f) => f.term);
    const sign = (style, text) => [el("i", { class: style }), el("span", {}, text)];
    const key = (keys, text) => [el("kbd", {}, keys), note(text)];
    return [
      el("p", { class: "title" }, "Click a cell, a line or a type to see who provides what to whom. Lines run from who provides to who needs, which is also the order of starting. What most cells share has no lines: it is noted in the boxes, with ← and →."),
      ...section("Degraded", list(bad.map((f) => el("li", {}, ref("cell", f.id))))),
      ...section("Off", list(off.map((f) => el("li", {}, ref("cell", f.id), el("div", { class: "note" }, f.reason))))),
      ...section("Signs", el("div", { class: "legend" },
        sign("", "cell of the process"),
        terms ? sign("term", "cell of a term, built afresh at every entry") : [],
        sign("off", "cell that is off, with the reason"),
        sign("flow", "needs"), sign("flow optional", "needs, if there is one"),
        terms ? sign("flow enters", "enters a term") : [])),
      ...section("Keys", el("div", { class: "keys" },
        key("/", "search"), key("Tab", "to the drawing, then arrows from cell to cell"), key("Enter", "select"),
        key("+ − 0", "zoom, and fit the drawing"), key("Esc", "let go"))),
    ];
  }

  function took(nanos) {
    const ms = nanos / 1e6;
    return ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${(ms * 1000).toFixed(0)} µs`;
  }

  // ---- search ------------------------------------------------------------------

  const query = $("query"), results = $("results");
  const entries = [
    ...facts.cells.map((f) => ({ kind: "cell", name: f.id, more: f.title || "", cells: [f.id], go: () => show("cell", f.id) })),
    ...facts.types.map((f) => ({ kind: "type", name: f.name, more: f.full === f.name ? "" : f.full, cells: (f.providers || []).map((p) => p.cell), go: () => show("type", f.name) })),
    ...facts.flags.map((f) => ({ kind: "flag", name: "--" + f.name, more: f.usage || "", cells: [f.cell], go: () => show("flag", f.name) })),
    ...nodes.map((n) => ({ kind: n.kind, name: n.name, more: "in " + n.cell, cells: [n.cell], go: () => show("cell", n.cell, n.name) })),
  ];
  const most = 50;
  let active = -1, shown = [];

  function search() {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (const e of words.length ? entries : []) {
      const name = e.name.toLowerCase(), all = `${name} ${e.more.toLowerCase()} ${e.kind}`;
      if (!words.every((w) => all.includes(w))) continue;
      const place = name.indexOf(words[0]);
      found.push([name === words[0] ? -1 : place < 0 ? 1000 : place, e]);
    }
    found.sort((a, b) => a[0] - b[0]); // stable: cells come first
    const hits = new Set(found.flatMap(([, e]) => e.cells));
    view.classList.toggle("found", words.length > 0);
    for (const box of boxes) box.classList.toggle("hit", words.length > 0 && hits.has(cellOf(box)));
    active = found.length ? 0 : -1;
    shown = found.slice(0, most).map(([, e]) => e);
    results.replaceChildren(...shown.map((e, i) =>
      el("li", { role: "option", id: `result-${i}`, "aria-selected": i === 0 ? "true" : "false", onclick: () => choose(e), onpointermove: () => activate(i) },
        el("span", { class: "kind" }, e.kind), el("span", { class: e.kind === "cell" ? "" : "code" }, ...marked(e.name, words)), e.more && el("span", { class: "more" }, e.more))));
    if (words.length && !found.length) results.append(el("li", { class: "none" }, "Nothing is called that."));
    if (found.length > most) results.append(el("li", { class: "none" }, `and ${found.length - most} more`));
    open(words.length > 0);
  }

  // marked shows where the first word stands in a name.
  function marked(name, words) {
    const i = name.toLowerCase().indexOf(words[0]);
    if (i < 0) return [name];
    return [name.slice(0, i), el("mark", {}, name.slice(i, i + words[0].length)), name.slice(i + words[0].length)];
  }
  function open(yes) {
    results.hidden = !yes;
    query.setAttribute("aria-expanded", String(yes));
    if (yes && active >= 0) query.setAttribute("aria-activedescendant", `result-${active}`);
    else query.removeAttribute("aria-activedescendant");
  }
  function activate(i) {
    if (i < 0 || i >= shown.length) return;
    active = i;
    [...results.children].forEach((li, j) => li.setAttribute("aria-selected", String(j === i)));
    results.children[i].scrollIntoView({ block: "nearest" });
    query.setAttribute("aria-activedescendant", `result-${i}`);
  }
  function letGo() {
    query.value = "";
    search();
  }
  function choose(e) {
    letGo();
    query.blur();
    e.go();
    $("panel").focus({ preventScroll: true });
  }
  query.addEventListener("input", search);
  query.addEventListener("focus", () => query.value && search());
  query.addEventListener("blur", () => setTimeout(() => open(false), 150));
  query.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown") activate(active + 1);
    else if (e.key === "ArrowUp") activate(active - 1);
    else if (e.key === "Enter" && active >= 0) choose(shown[active]);
    else if (e.key === "Escape") {
      letGo();
      query.blur();
    } else return;
    e.preventDefault();
    e.stopPropagation();
  });

  // ---- views and keys ------------------------------------------------------------

  const tabs = [$("tab-drawing"), $("tab-order")];
  function turnTo(tab) {
    for (const t of tabs) {
      t.setAttribute("aria-selected", String(t === tab));
      t.tabIndex = t === tab ? 0 : -1;
      $(t.getAttribute("aria-controls")).hidden = t !== tab;
    }
    if (tab === tabs[0] && fitted) fit();
  }
  for (const tab of tabs) {
    tab.addEventListener("click", () => turnTo(tab));
    tab.addEventListener("keydown", (e) => {
      if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
      const other = tabs[1 - tabs.indexOf(tab)];
      turnTo(other);
      other.focus();
    });
  }
  for (const b of document.querySelectorAll("#order .ref")) b.addEventListener("click", () => select("cell", b.dataset.cell));
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target === query) return;
    if (e.key === "/") {
      query.focus();
      e.preventDefault();
    } else if (e.key === "Escape") select();
    else if ($("drawing").hidden) return;
    else if (e.key === "+" || e.key === "=") zoom(1.3);
    else if (e.key === "-") zoom(1 / 1.3);
    else if (e.key === "0") fit();
  });

  // fromAddress selects what the address names: #cell=k8s.
  function fromAddress() {
    const [[kind, name]] = [...new URLSearchParams(location.hash.slice(1)), []];
    if (["cell", "type", "flag"].includes(kind)) select(kind, name, "", true);
    else select("", "", "", true);
  }
  addEventListener("hashchange", fromAddress);
  search();
  fit();
  fromAddress();
})();
