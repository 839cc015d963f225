"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  document.documentElement.classList.add("js");

  const show = (chooser, id) => {
    const choices = all(":scope > .choice", chooser);
    if (!choices.some((choice) => choice.id === id)) return;
    choices.forEach((choice) => choice.classList.toggle("current", choice.id === id));
    chooser.querySelector("select").value = id;
  };

  all(".chooser").forEach((chooser) => {
    const select = chooser.querySelector("select");
    chooser.querySelector(".choose").hidden = false;
    select.addEventListener("change", () => show(chooser, select.value));
    all("[data-step]", chooser).forEach((button) =>
      button.addEventListener("click", () => {
        const n = select.options.length;
        show(chooser, select.options[(select.selectedIndex + Number(button.dataset.step) + n) % n].value);
      })
    );
    show(chooser, select.options[0].value);
  });

  const follow = () => {
    const choice = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!choice || !choice.matches(".choice")) return;
    show(choice.parentElement, choice.id);
    choice.parentElement.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();

  const key = (row, column) => {
    const cell = row.cells[column];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };
  const compare = (a, b) =>
    typeof a === typeof b ? (typeof a === "number" ? a - b : a.localeCompare(b)) : typeof a === "number" ? -1 : 1;

  all("table").forEach((table) => {
    const heads = all("thead th", table);
    const body = table.tBodies[0];
    if (body.rows.length < 3) return;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", "Sort by " + head.textContent.trim());
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = Array.from(body.rows).sort((a, b) => compare(key(a, column), key(b, column)));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
    if (!table.classList.contains("long")) return;
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "Filter rows";
    filter.setAttribute("aria-label", "Filter rows of: " + table.parentElement.getAttribute("aria-label"));
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      all("tbody tr", table).forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(wanted)));
    });
    table.parentElement.before(filter);
  });

  const contents = document.querySelector("nav details");
  const narrow = matchMedia("(max-width: 899px)");
  const fold = () => (contents.open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
  all("nav a").forEach((link) => link.addEventListener("click", fold));

  const links = new Map(all("nav li a").map((link) => [link.hash.slice(1), link]));
  const mark = () => {
    const seen = all("main section").filter((section) => section.getBoundingClientRect().top < innerHeight / 3);
    links.forEach((link) => link.removeAttribute("aria-current"));
    const last = seen.pop();
    if (last) links.get(last.id).setAttribute("aria-current", "true");
  };
  addEventListener("scroll", mark, { passive: true });
  mark();

  addEventListener("beforeprint", () => all("details").forEach((fold) => (fold.open = true)));
})();
