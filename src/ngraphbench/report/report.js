"use strict";
(() => {
  const all = (query, within = document) => Array.from(within.querySelectorAll(query));
  const hiding = new CSSStyleSheet();
  const dimming = new CSSStyleSheet();
  document.adoptedStyleSheets = [hiding, dimming];

  // Filters: a rule per value that is not wanted, so that the size of the page does not matter.
  const form = document.getElementById("filters");
  const unwanted = () => {
    const rules = [];
    for (const facet of all("details[data-facet]", form)) {
      const boxes = all("input", facet);
      const off = boxes.filter((box) => !box.checked);
      for (const box of off) rules.push(`[data-${facet.dataset.facet}="${box.value}"]`);
      const on = boxes.length - off.length;
      facet.querySelector(".count").textContent = off.length ? `${on} of ${boxes.length}` : `all ${on}`;
      facet.classList.toggle("some", off.length > 0);
    }
    return rules;
  };
  const filter = () => {
    const rules = unwanted();
    hiding.replaceSync(rules.length ? `:is(${rules.join(",")}){display:none!important}` : "");
    form.querySelector("[type=reset]").disabled = rules.length === 0;
    const cells = all("[data-cell]");
    const gone = rules.length ? cells.filter((cell) => cell.matches(rules.join(","))).length : 0;
    document.getElementById("shown").textContent =
      rules.length ? `${cells.length - gone} of ${cells.length} cells` : "";
    for (const chart of all("figure.chart")) {
      const visible = all(".panel", chart).some((panel) => panel.getClientRects().length);
      chart.querySelector(".nothing").hidden = visible;
    }
    told = null;
    hide();
  };

  // What a mark says: its title, shown at once and also to those who use the keyboard.
  const tip = document.getElementById("tip");
  let told = null;
  for (const title of all(".panel .m > title")) {
    title.parentNode.dataset.t = title.textContent;
    title.remove();
  }
  const hide = () => {
    tip.hidden = true;
    if (told) told.classList.remove("told");
  };
  const tell = (mark) => {
    hide();
    told = mark;
    mark.classList.add("told");
    tip.textContent = mark.dataset.t;
    tip.hidden = false;
    place(mark);
  };
  const place = (mark) => {
    const box = mark.querySelector("use").getBoundingClientRect();
    const width = tip.offsetWidth;
    const left = Math.min(Math.max(6, box.x + box.width / 2 - width / 2), innerWidth - width - 6);
    const above = box.y - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 60 ? above : box.bottom + 8}px`;
  };
  const follow = (mark) => {
    if (mark && mark.dataset.h) location.hash = mark.dataset.h;
  };
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest && event.target.closest(".panel .m");
    if (mark && mark.dataset.t) tell(mark);
    else if (!tip.hidden && event.pointerType === "mouse") hide();
  });
  document.addEventListener("click", (event) => {
    const mark = event.target.closest(".panel .m");
    if (mark && event.pointerType !== "touch") follow(mark);
    for (const open of all("details[data-facet][open]")) {
      if (!open.contains(event.target)) open.open = false;
    }
  });
  addEventListener("scroll", () => tip.hidden || place(told), { passive: true });
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      hide();
      for (const open of all("details[data-facet][open]")) open.open = false;
    }
    const panel = event.target.closest && event.target.closest(".panel");
    if (!panel) return;
    if (event.key === "Enter") follow(told);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const marks = all(".m[data-t]", panel).filter((mark) => mark.getClientRects().length);
    if (!marks.length) return;
    const next = marks.indexOf(told) + steps[event.key];
    tell(marks[(next + marks.length) % marks.length]);
  });
  for (const panel of all(".panel")) {
    panel.setAttribute("tabindex", "0");
    panel.addEventListener("blur", hide);
  }

  // A name in a legend makes the others step back.
  const dim = (item) => {
    const wanted = item && item.dataset.c;
    dimming.replaceSync(
      wanted === undefined || wanted === null
        ? ""
        : `.panel :is(.m,.l)[data-c]:not([data-c="${wanted}"]){opacity:.13}`,
    );
  };
  for (const item of all(".legend li[data-c]")) {
    item.addEventListener("pointerenter", () => dim(item));
    item.addEventListener("pointerleave", () => dim(null));
    item.addEventListener("focusin", () => dim(item));
    item.addEventListener("focusout", () => dim(null));
  }

  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // A list that opens near the right edge moves to the left as far as it must.
  const inside = (details) => {
    const list = details.querySelector("fieldset");
    list.style.left = "0";
    const over = list.getBoundingClientRect().right - document.documentElement.clientWidth + 8;
    if (over > 0) list.style.left = `${-over}px`;
  };

  if (form) {
    form.hidden = false;
    for (const facet of all("details[data-facet]", form)) {
      facet.addEventListener("toggle", () => facet.open && inside(facet));
    }
    form.addEventListener("change", filter);
    form.addEventListener("reset", () => setTimeout(filter));
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const button of all("[data-all],[data-none]", form)) {
      button.addEventListener("click", () => {
        for (const box of all("input", button.closest("fieldset"))) {
          box.checked = "all" in button.dataset;
        }
        filter();
      });
    }
    filter();
  }
})();
