"use strict";
// What a page does where scripts run: search, and trace a part of the plan. Every text is set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const made = (name, text, kind) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (kind) element.className = kind;
    return element;
  };

  function plan({ parts, ties }) {
    const svg = one("#picture");
    const panel = one("#trace");
    const known = new Map(parts.map((part) => [part.id, part]));
    const drawn = new Map(all(".part", svg).map((element) => [element.dataset.part, element]));
    const lines = all(".lines path", svg);
    const down = new Map(), up = new Map();
    for (const tie of ties) {
      down.set(tie[0], [...(down.get(tie[0]) || []), tie]);
      up.set(tie[1], [...(up.get(tie[1]) || []), tie]);
    }
    const wordsOf = (part) => [part.label, part.title, ...part.facts.map((fact) => fact[1])];
    let picked = null;

    function reached(id, ways, end) {
      const found = new Set([id]);
      for (const here of found) for (const tie of ways.get(here) || []) found.add(tie[end]);
      return found;
    }

    function trace(id) {
      svg.classList.toggle("tracing", id !== null);
      const below = id === null ? new Set() : reached(id, down, 1);
      const above = id === null ? new Set() : reached(id, up, 0);
      for (const [name, element] of drawn) element.classList.toggle("on", below.has(name) || above.has(name));
      for (const line of lines) {
        const { from, to } = line.dataset;
        line.classList.toggle("on", (below.has(from) && below.has(to)) || (above.has(from) && above.has(to)));
      }
    }

    function tied(title, found, end) {
      if (!found.length) return [];
      const list = made("ul");
      for (const tie of found) {
        const row = made("li", undefined, tie[3] === "broken" ? "broken" : "");
        const button = made("button", known.get(tie[end]).label);
        button.type = "button";
        button.addEventListener("click", () => pick(tie[end], true));
        row.append(button, made("span", tie[2] ? ` ${tie[2]}` : tie[3] === "broken" ? " missing" : ""));
        list.append(row);
      }
      return [made("h4", title), list];
    }

    function pick(id, move) {
      if (picked !== null) {
        drawn.get(picked).classList.remove("picked");
        drawn.get(picked).removeAttribute("aria-pressed");
      }
      picked = id;
      trace(id);
      panel.hidden = id === null;
      if (id === null) return;
      const part = known.get(id), element = drawn.get(id);
      element.classList.add("picked");
      element.setAttribute("aria-pressed", "true");
      const close = made("button", "close", "close");
      close.type = "button";
      close.addEventListener("click", () => { pick(null); element.focus(); });
      const facts = made("dl");
      for (const [name, value] of part.facts) {
        const row = made("div");
        row.append(made("dt", name), made("dd", value));
        facts.append(row);
      }
      panel.replaceChildren(close, made("h3", part.label), facts,
        ...tied("needs", down.get(id) || [], 1), ...tied("is needed by", up.get(id) || [], 0));
      if (move) {
        element.scrollIntoView({ block: "center", inline: "nearest" });
        focusOn(element);
      }
    }

    const order = all(".part", svg);
    function focusOn(element) {
      for (const other of order) other.setAttribute("tabindex", other === element ? "0" : "-1");
      element.focus({ preventScroll: true });
    }
    order[0].setAttribute("tabindex", "0");
    for (const [id, element] of drawn) {
      element.addEventListener("click", () => pick(picked === id ? null : id));
      element.addEventListener("mouseenter", () => { if (picked === null) trace(id); });
      element.addEventListener("mouseleave", () => { if (picked === null) trace(null); });
    }
    svg.addEventListener("keydown", (event) => {
      const at = order.indexOf(event.target.closest(".part"));
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: order.length - 1 }[event.key];
      if (at < 0) return;
      if (to !== undefined && order[to]) focusOn(order[to]), order[to].scrollIntoView({ block: "nearest" });
      else if (event.key === "Enter" || event.key === " ") pick(picked === order[at].dataset.part ? null : order[at].dataset.part);
      else return;
      event.preventDefault();
    });
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && picked !== null) pick(null); });

    const texts = new Map(parts.map((part) => [part.id, wordsOf(part).join("\n").toLowerCase()]));
    searching(svg, drawn, texts, (id) => pick(id, true));
    for (const button of all("button.trace")) {
      const name = button.dataset.subject.toLowerCase();
      const found = parts.find((part) => wordsOf(part).some((text) => text.toLowerCase().split(/[ ,]+/).some((word) => word === name || word.endsWith(`/${name}`))));
      button.hidden = found === undefined;
      button.addEventListener("click", () => pick(found.id, true));
    }
  }

  // Mark what has the text that is searched; Enter chooses the first.
  function searching(root, elements, texts, choose, told) {
    const input = one("#search"), hits = one("#hits");
    input.parentElement.hidden = false;
    function find() {
      const wanted = input.value.trim().toLowerCase();
      const found = wanted ? [...texts.keys()].filter((id) => texts.get(id).includes(wanted)) : [];
      const marked = new Set(found);
      root.classList.toggle("searching", wanted !== "");
      for (const [id, element] of elements) element.classList.toggle("hit", marked.has(id));
      hits.textContent = wanted ? `${found.length} of ${texts.size}${told && found.length ? `; ${told(found[0])}` : ""}` : "";
      return found;
    }
    input.addEventListener("input", find);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && find().length) choose(find()[0]);
      if (event.key === "Escape") input.value = "", find();
    });
  }

  // A cell of a matrix, or a group of nodes, shows its findings only.
  function choosing(cells) {
    const told = one("#chosen"), rows = all("[data-in]");
    let chosen = null;
    function choose(cell) {
      chosen = cell === chosen ? null : cell;
      for (const other of cells) other.setAttribute("aria-pressed", String(other === chosen));
      const id = chosen && chosen.dataset.cell;
      for (const row of rows) row.hidden = id !== null && !row.dataset.in.split(" ").includes(id);
      for (const notes of all("details.notes")) if (id !== null) notes.open = true;
      const shown = rows.filter((row) => !row.hidden).length;
      told.hidden = id === null;
      one("span", told).textContent = id === null ? "" : `${shown} of ${rows.length} findings are about this one`;
    }
    for (const cell of cells) cell.addEventListener("click", () => choose(cell));
    one("button", told).addEventListener("click", () => choose(chosen));
  }

  // Machines are found by their names; the answer says in which group.
  function machines(squares) {
    const drawn = new Map(squares.map((square, at) => [at, square]));
    const texts = new Map(squares.map((square, at) => [at, square.title.toLowerCase()]));
    const groupOf = (square) => square.closest(".group");
    const told = (at) => `${squares[at].title}: ${one(".tag", groupOf(squares[at])).textContent}`;
    searching(one("main"), drawn, texts, (at) => groupOf(squares[at]).scrollIntoView({ block: "nearest" }), told);
  }

  // A closed part of the page would be missing on paper.
  const closed = [];
  addEventListener("beforeprint", () => { for (const element of all("details:not([open])")) closed.push(element), element.open = true; });
  addEventListener("afterprint", () => { for (const element of closed.splice(0)) element.open = false; });

  if (data && data.parts) plan(data);
  if (one(".nodes i")) machines(all(".nodes i"));
  if (one("[data-cell]")) choosing(all("[data-cell]"));
})();
