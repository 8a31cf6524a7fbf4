// Sorts and filters the rows of tables of the class "sortable". Without this script, each table
// shows all rows in the original order. Browsers let the keyboard use buttons and inputs.
(function () {
  "use strict";
  var FEWEST_ROWS_TO_FILTER = 6;

  // The number in a cell: data-value, or the first number of the text, times the unit's SI prefix.
  function number(cell) {
    if (cell.dataset.value !== undefined) { return +cell.dataset.value; }
    var text = cell.textContent.trim().replace(/−/g, "-").replace(/(\d)[\u2009\u202f\u00a0,](?=\d{3})/g, "$1");
    var match = /^([+-]?[\d.]+(?:e[+-]?\d+)?)\s*(%|[kMGTmµn]?(?:B\/s|B|s|Hz)?)/.exec(text);
    if (!match) { return NaN; }
    var prefix = /^[kMGTmµn](?=B|s|Hz)/.exec(match[2]);
    var scale = prefix ? { k: 1e3, M: 1e6, G: 1e9, T: 1e12, m: 1e-3, "µ": 1e-6, n: 1e-9 }[prefix[0]] : 1;
    return +match[1] * scale;
  }

  function compareCells(a, b) {
    var x = number(a), y = number(b);
    if (!isNaN(x) && !isNaN(y)) { return x - y; }
    return a.textContent.trim().localeCompare(b.textContent.trim(), undefined, { numeric: true });
  }

  function sort(table, heading, column) {
    var body = table.tBodies[0], rows = Array.from(body.rows);
    var way = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    table.querySelectorAll("[aria-sort]").forEach(function (other) { other.removeAttribute("aria-sort"); });
    heading.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    rows.sort(function (a, b) {
      var x = a.cells[column], y = b.cells[column];
      return isNaN(number(x)) - isNaN(number(y)) || way * compareCells(x, y); // cells without a number are last
    });
    rows.forEach(function (row) { body.appendChild(row); });
  }

  function filter(table, input, status) {
    var words = input.value.toLowerCase().split(/\s+/).filter(Boolean), rows = Array.from(table.tBodies[0].rows);
    rows.forEach(function (row) {
      var text = row.textContent.toLowerCase();
      row.hidden = !words.every(function (word) { return text.includes(word); });
    });
    var shown = rows.filter(function (row) { return !row.hidden; }).length;
    status.textContent = words.length ? shown + " of " + rows.length + " rows" : "";
  }

  document.querySelectorAll("table.sortable").forEach(function (table) {
    var heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
    Array.from(heads).forEach(function (heading, column) {
      var made = document.createElement("button");
      made.type = "button";
      made.className = "sort";
      made.title = "sort by this column";
      while (heading.firstChild) { made.appendChild(heading.firstChild); }
      heading.appendChild(made);
      made.addEventListener("click", function () { sort(table, heading, column); });
    });
    if (table.tBodies[0].rows.length >= FEWEST_ROWS_TO_FILTER) {
      var tools = document.createElement("div"), label = document.createElement("label");
      var input = document.createElement("input"), status = document.createElement("span");
      tools.className = "table-tools";
      input.type = "search";
      status.setAttribute("role", "status");
      label.append("Show rows with ", input);
      tools.append(label, status);
      (table.closest(".wide") || table).before(tools);
      input.addEventListener("input", function () { filter(table, input, status); });
    }
  });
})();
