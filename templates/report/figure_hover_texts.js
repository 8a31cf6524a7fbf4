// Shows what a mark says at once, on hover, touch and keyboard focus. Without this script the
// browser shows the same text, each mark's <title>, after a moment.
(function () {
  "use strict";
  var box = document.getElementById("hover");
  var frame = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  frame.setAttribute("class", "chosen");
  frame.setAttribute("rx", "2");

  function choose(mark) {
    var around = mark.getBBox();
    ["x", "y", "width", "height"].forEach(function (side) {
      frame.setAttribute(side, around[side]);
    });
    mark.ownerSVGElement.appendChild(frame); // last, so that no neighbour covers it
  }

  function show(mark, x, y) {
    choose(mark);
    box.textContent = mark.getAttribute("aria-label");
    box.className = "shown";
    var width = box.offsetWidth, height = box.offsetHeight;
    var left = Math.min(Math.max(8, x - width / 2), document.documentElement.clientWidth - width - 8);
    var top = y - height - 12;
    box.style.left = left + "px";
    box.style.top = (top < 8 ? y + 18 : top) + "px";
  }

  function showAt(mark) {
    var place = mark.getBoundingClientRect();
    show(mark, place.left + place.width / 2, place.top);
  }

  function hide() {
    box.className = "";
    frame.remove();
  }

  // One mark of a figure is in the tab order; arrow keys move between the others.
  function move(marks, from, key) {
    var here = marks[from], row = +here.dataset.row, column = +here.dataset.column;
    var step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
    if (here.dataset.row === undefined) {
      return marks[from + step[0] + step[1]];
    }
    return marks.find(function (mark) {
      return +mark.dataset.row === row + step[0] && +mark.dataset.column === column + step[1];
    });
  }

  function prepare(svg) {
    var marks = Array.from(svg.querySelectorAll(".mark"));
    svg.querySelectorAll(":scope > title, :scope > desc").forEach(function (e) { e.remove(); });
    marks.forEach(function (mark, number) {
      var title = mark.querySelector("title");
      mark.setAttribute("aria-label", title.textContent);
      mark.setAttribute("role", "img");
      mark.setAttribute("tabindex", number ? "-1" : "0");
      title.remove(); // the browser's own hover text would come on top, late
    });
    svg.addEventListener("mousemove", function (event) {
      var mark = event.target.closest(".mark");
      if (mark) { show(mark, event.clientX, event.clientY); } else { hide(); }
    });
    svg.addEventListener("mouseleave", hide);
    svg.addEventListener("click", function (event) {
      var mark = event.target.closest(".mark");
      if (mark) { showAt(mark); } else { hide(); }
    });
    svg.addEventListener("focusin", function (event) {
      var mark = event.target.closest(".mark");
      if (mark && mark.matches(":focus-visible")) { showAt(mark); }
    });
    svg.addEventListener("focusout", hide);
    svg.addEventListener("keydown", function (event) {
      if (event.key === "Escape") { hide(); }
      if (!event.key.startsWith("Arrow")) { return; }
      var from = marks.indexOf(event.target.closest(".mark"));
      var to = from < 0 ? null : move(marks, from, event.key);
      if (!to) { return; }
      event.preventDefault();
      marks[from].setAttribute("tabindex", "-1");
      to.setAttribute("tabindex", "0");
      to.focus();
      showAt(to);
    });
  }

  // Draws a drawing that a large page keeps as text: compressed with gzip, in base64.
  function unpack(drawing) {
    var packed = drawing.dataset.packed;
    if (!packed) { return Promise.resolve(); }
    // Away from the window the box keeps the height that it has now, so that the page does not jump.
    drawing.style.containIntrinsicHeight = "auto " + drawing.offsetHeight + "px";
    drawing.classList.add("unpacked");
    drawing.removeAttribute("data-packed");
    var bytes = Uint8Array.from(atob(packed), function (letter) { return letter.charCodeAt(0); });
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text().then(function (svg) {
      drawing.removeAttribute("role"); // the drawing has its own role and name
      drawing.removeAttribute("aria-label");
      drawing.innerHTML = svg;
      drawing.querySelectorAll("figure svg").forEach(prepare);
    });
  }

  document.querySelectorAll("figure svg").forEach(prepare);
  var waiting = Array.from(document.querySelectorAll("[data-packed]"));
  var observer = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (entry.isIntersecting) {
        observer.unobserve(entry.target);
        unpack(entry.target);
      }
    });
  }, { rootMargin: "100% 0px" }); // a screen before they come into view
  waiting.forEach(function (drawing) { observer.observe(drawing); });
  // The others follow while nothing else is to be done, for printing and for the search.
  function idle(f) {
    if (window.requestIdleCallback) { requestIdleCallback(f, { timeout: 100 }); } else { setTimeout(f, 100); }
  }
  function next() {
    if (waiting.length) { unpack(waiting.shift()).then(function () { idle(next); }); }
  }
  idle(next);
  document.addEventListener("scroll", hide, { passive: true });
})();
