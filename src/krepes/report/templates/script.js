"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const root = document.documentElement;
  root.classList.add("js");

  const stored = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("krepes-theme") || "";
      localStorage.setItem("krepes-theme", value);
    } catch { return ""; }
  };
  const theme = document.getElementById("theme");
  const paint = (value) => (value ? (root.dataset.theme = value) : delete root.dataset.theme);
  theme.parentElement.hidden = false;
  theme.value = stored();
  paint(theme.value);
  theme.addEventListener("change", () => { paint(theme.value); stored(theme.value); });

  const show = (chooser, id) => {
    const choices = all(":scope > .choice", chooser);
    if (!choices.some((choice) => choice.id === id)) return;
    choices.forEach((choice) => choice.classList.toggle("current", choice.id === id));
    const select = chooser.querySelector("select");
    if (!all("option", select).some((option) => option.value === id)) refill(chooser, "");
    select.value = id;
    all(".map [data-of]", chooser).forEach((part) => part.classList.toggle("current", part.dataset.of === id));
  };
  const names = new Map();
  const refill = (chooser, wanted) => {
    const found = names.get(chooser).filter((option) => option.textContent.toLowerCase().includes(wanted));
    const select = chooser.querySelector("select");
    select.replaceChildren(...found);
    return found;
  };
  all(".chooser").forEach((chooser) => {
    const select = chooser.querySelector("select");
    names.set(chooser, all("option", select));
    chooser.querySelector(".choose").hidden = false;
    select.addEventListener("change", () => show(chooser, select.value));
    all("[data-step]", chooser).forEach((button) =>
      button.addEventListener("click", () => {
        const n = select.options.length;
        show(chooser, select.options[(select.selectedIndex + Number(button.dataset.step) + n) % n].value);
      })
    );
    const find = chooser.querySelector("input[type=search]");
    find.addEventListener("input", () => {
      const found = refill(chooser, find.value.toLowerCase());
      find.setAttribute("aria-invalid", String(!found.length));
      if (found.length) show(chooser, found[0].value);
    });
    show(chooser, select.options[0].value);
  });

  let opened = false;
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.matches(".choice")) {
      show(target.parentElement, target.id);
      target.parentElement.scrollIntoView();
    }
    if (target && target.matches(".sheet")) target.focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  follow();
  const close = () => (opened ? history.back() : (location.hash = "#" + document.querySelector(".sheet:target").id.split("-")[0] + "-landmarks"));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    const inside = document.querySelector(".sheet:target");
    if (link && link.matches(".close")) { event.preventDefault(); close(); opened = false; return; }
    if (link) {
      const target = document.getElementById(link.getAttribute("href").slice(1));
      if (target && target.matches(".sheet") && !inside) opened = true;
      else if (target && !target.matches(".sheet")) opened = false;
      if (target && target.matches(".choice") && location.hash === link.getAttribute("href")) follow();
    } else if (inside && !event.target.closest(".sheet")) { close(); opened = false; }
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.querySelector(".sheet:target")) { close(); opened = false; }
    if (event.key === "Escape") hide();
  });

  const tip = document.getElementById("tip");
  const hide = () => (tip.hidden = true);
  const explain = (term) => {
    tip.textContent = document.getElementById(term.getAttribute("href").slice(1)).querySelector("dd").textContent;
    tip.hidden = false;
    const at = term.getBoundingClientRect(), own = tip.getBoundingClientRect();
    tip.style.left = Math.max(12, Math.min(at.left, root.clientWidth - own.width - 12)) + "px";
    tip.style.top = (at.bottom + own.height + 12 > innerHeight ? at.top - own.height - 6 : at.bottom + 6) + "px";
  };
  all(".term").forEach((term) => {
    term.setAttribute("aria-describedby", "tip");
    term.addEventListener("mouseenter", () => explain(term));
    term.addEventListener("mouseleave", hide);
    term.addEventListener("focus", () => explain(term));
    term.addEventListener("blur", hide);
    term.addEventListener("click", (event) => { event.preventDefault(); explain(term); });
  });
  addEventListener("scroll", hide, { passive: true });

  const said = (cell) => Array.from(cell.childNodes).filter((node) => node.nodeName !== "BUTTON").map((node) => node.textContent).join(" ").trim();
  const key = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };
  const compare = (a, b) =>
    typeof a === typeof b ? (typeof a === "number" ? a - b : a.localeCompare(b)) : typeof a === "number" ? -1 : 1;
  const harmless = (text) => (/^[\s\u00a0]*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]/.test(text) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(text) ? "'" + text : text);
  const csv = (table) =>
    Array.from(table.rows, (row) =>
      Array.from(row.cells, (cell) => cell.dataset.value ?? '"' + harmless(said(cell)).replaceAll('"', '""') + '"').join(",")
    ).join("\r\n") + "\r\n";

  all("table").forEach((table) => {
    const box = table.parentElement, heads = all("thead th", table), body = table.tBodies[0];
    const title = box.getAttribute("aria-label");
    const bar = document.createElement("div"), tools = document.createElement("div");
    bar.className = "bar";
    tools.className = "tools";
    const caption = box.previousElementSibling;
    box.before(bar);
    if (caption && caption.matches(".caption")) bar.append(caption);
    bar.append(tools);
    if (table.classList.contains("long")) {
      const filter = document.createElement("input");
      filter.type = "search";
      filter.placeholder = "Filter rows";
      filter.setAttribute("aria-label", "Filter rows of: " + title);
      filter.addEventListener("input", () => {
        const wanted = filter.value.toLowerCase();
        all("tbody tr", table).forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(wanted)));
      });
      tools.append(filter);
    }
    const save = document.createElement("button");
    save.type = "button";
    save.className = "csv";
    save.textContent = "CSV";
    save.setAttribute("aria-label", "Save as CSV: " + title);
    save.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
      link.download = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60) + ".csv";
      link.click();
      URL.revokeObjectURL(link.href);
    });
    tools.append(save);
    if (body.rows.length < 3) return;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", "Sort by " + (said(head) || "column " + (column + 1)));
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = Array.from(body.rows).sort((a, b) => compare(key(a, column), key(b, column)));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  });

  const contents = document.querySelector("nav details");
  const narrow = matchMedia("(max-width: 899px)");
  const fold = () => (contents.open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
  all("nav a").forEach((link) => link.addEventListener("click", fold));

  const links = new Map(all("nav a").map((link) => [link.hash.slice(1), link]));
  const mark = () => {
    const seen = all("main section").filter((section) => section.getBoundingClientRect().top < innerHeight / 3);
    links.forEach((link) => link.removeAttribute("aria-current"));
    const last = seen.pop();
    if (last && links.has(last.id)) links.get(last.id).setAttribute("aria-current", "true");
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
})();
