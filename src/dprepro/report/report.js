"use strict";
// Makes the tables searchable, filterable and sortable, and opens what is folded before printing.
(() => {
  const FEWEST_ROWS = 6;
  const MOST_CHOICES = 60;

  const element = (name, properties = {}, children = []) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  const value = (cell) => cell.dataset.group ?? cell.textContent.trim();

  function columnOf(table, column) {
    return [...table.tBodies[0].rows].map((row) => value(row.cells[column]));
  }

  function choice(table, header, column) {
    const values = [...new Set(columnOf(table, column))].filter(Boolean);
    values.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    if (values.length < 2 || values.length > MOST_CHOICES) return null;
    const options = [new Option("all", ""), ...values.map((text) => new Option(text, text))];
    const select = element("select", {}, options);
    select.dataset.column = column;
    return element("label", {}, [`${header.textContent} `, select]);
  }

  function filter(table, search, selects, output) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((select) => select.value);
    let shown = 0;
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const kept =
        words.every((word) => text.includes(word)) &&
        chosen.every((select) => value(row.cells[select.dataset.column]) === select.value);
      row.hidden = !kept;
      shown += kept;
    }
    output.textContent = `${shown} of ${rows.length} rows`;
  }

  function compare(column, direction) {
    return (one, other) => {
      const [a, b] = [one.cells[column], other.cells[column]];
      const [x, y] = [a.dataset.number, b.dataset.number];
      // Cells without a number stand below those with one, whatever the direction.
      if (x === undefined !== (y === undefined)) return x === undefined ? 1 : -1;
      const order = x === y ? 0 : x !== undefined ? Number(x) - Number(y) : a.textContent.localeCompare(b.textContent, "en");
      return direction * (order || 0);
    };
  }

  function sortable(table, header, column) {
    const button = element("button", { type: "button" }, [...header.childNodes]);
    header.append(button);
    button.addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort(compare(column, down ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  }

  function controls(box) {
    const table = box.querySelector("table");
    const headers = [...table.tHead.rows[0].cells];
    const bar = element("div", { className: "controls" });
    if (table.tBodies[0].rows.length >= FEWEST_ROWS) {
      const search = element("input", { type: "search" });
      const output = element("output", {});
      output.setAttribute("aria-live", "polite");
      const labels = headers
        .map((header, column) => (header.hasAttribute("data-chosen") ? choice(table, header, column) : null))
        .filter(Boolean);
      const selects = labels.map((label) => label.querySelector("select"));
      const apply = () => filter(table, search, selects, output);
      search.addEventListener("input", apply);
      for (const select of selects) select.addEventListener("change", apply);
      bar.append(element("label", {}, ["search ", search]), ...labels, output);
      apply();
    }
    if (table.querySelector("th.extra")) {
      const check = element("input", { type: "checkbox" });
      check.addEventListener("change", () => box.classList.toggle("wide", check.checked));
      bar.prepend(element("label", { className: "check" }, [check, " all columns"]));
    }
    if (bar.childNodes.length) box.prepend(bar);
    headers.forEach((header, column) => sortable(table, header, column));
  }

  function openTo(place) {
    for (let node = place; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    place?.scrollIntoView();
  }

  const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));

  document.documentElement.classList.add("scripted");
  for (const box of document.querySelectorAll(".table")) controls(box);
  addEventListener("hashchange", () => openTo(target()));
  if (location.hash) openTo(target());

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
    folded = [];
  });
})();
