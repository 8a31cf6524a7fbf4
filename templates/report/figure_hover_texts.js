// Shows the text of a mark at once, on hover, touch and keyboard focus. Without this script, the
// browser shows the same text, which is the <title> of the mark, after a moment.
(function () {
  "use strict";
  var box = document.getElementById("hover"), frame = document.createElement("div");
  frame.className = "chosen";

  function show(mark, x, y) {
    var place = mark.getBoundingClientRect();
    ["left", "top", "width", "height"].forEach(function (side) { frame.style[side] = place[side] + "px"; });
    document.body.appendChild(frame);
    box.textContent = mark.getAttribute("aria-label");
    box.className = "shown";
    var width = box.offsetWidth, top = y - box.offsetHeight - 12;
    var left = Math.min(Math.max(8, x - width / 2), document.documentElement.clientWidth - width - 8);
    box.style.left = left + "px";
    box.style.top = (top < 8 ? y + 18 : top) + "px";
  }

  function hide() {
    box.className = "";
    frame.remove();
  }

  function middle(mark) {
    var place = mark.getBoundingClientRect();
    return { x: place.left + place.width / 2, y: place.top + place.height / 2, top: place.top };
  }

  function showAt(mark) { var at = middle(mark); show(mark, at.x, at.top); }

  // The nearest mark in the direction of an arrow key; a mark straight ahead counts as nearer.
  function next(marks, from, key) {
    var turned = key === "ArrowUp" || key === "ArrowDown", back = key === "ArrowLeft" || key === "ArrowUp";
    var here = middle(from), best = null, least = Infinity;
    marks.forEach(function (mark) {
      var at = middle(mark), x = at.x - here.x, y = at.y - here.y;
      var ahead = (turned ? y : x) * (back ? -1 : 1), aside = Math.abs(turned ? x : y);
      var distance = ahead + 4 * aside;
      if (ahead > 0.5 && distance < least) { best = mark; least = distance; }
    });
    return best;
  }

  document.querySelectorAll("figure svg").forEach(function (svg) {
    var marks = Array.from(svg.querySelectorAll(".mark"));
    svg.querySelectorAll(":scope > title, :scope > desc").forEach(function (e) { e.remove(); });
    marks.forEach(function (mark, number) {
      var title = mark.querySelector("title");
      mark.setAttribute("aria-label", title.textContent);
      mark.setAttribute("role", "img");
      mark.setAttribute("tabindex", number ? "-1" : "0"); // the tab key stops once at each figure
      title.remove(); // the browser's own hover text would later cover this text
    });
    function markOf(event) { return event.target.closest(".mark"); }
    svg.addEventListener("mousemove", function (event) {
      if (markOf(event)) { show(markOf(event), event.clientX, event.clientY); } else { hide(); }
    });
    svg.addEventListener("mouseleave", hide);
    svg.addEventListener("click", function (event) {
      if (markOf(event)) { showAt(markOf(event)); } else { hide(); }
    });
    svg.addEventListener("focusin", function (event) {
      if (markOf(event) && markOf(event).matches(":focus-visible")) { showAt(markOf(event)); }
    });
    svg.addEventListener("focusout", hide);
    svg.addEventListener("keydown", function (event) {
      if (event.key === "Escape") { hide(); }
      var to = event.key.startsWith("Arrow") && markOf(event) && next(marks, markOf(event), event.key);
      if (!to) { return; }
      event.preventDefault();
      markOf(event).setAttribute("tabindex", "-1");
      to.setAttribute("tabindex", "0");
      to.focus();
      showAt(to);
    });
  });
  document.addEventListener("scroll", hide, { passive: true });
})();
