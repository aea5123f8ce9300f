"use strict";
// Charts, legend, layers and theme. Data come from the JSON element; text goes into text nodes alone.
window.report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const state = { view: data.views[0]?.name, hidden: new Set(), layers: new Map(data.layers.map((l) => [l.name, l.shown])) };
  const drawn = new Set();

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  };

  // ---- theme ----

  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (darkSystem.matches ? "dark" : "light")) === "dark";
  const themeButton = document.getElementById("theme");
  const themed = () => {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    redraw();
  };
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    themed();
  });
  darkSystem.addEventListener("change", themed);

  // ---- charts ----

  const merged = (base, over) => {
    const result = { ...base };
    for (const [key, value] of Object.entries(over)) {
      const both = value && base[key] && [value, base[key]].every((v) => typeof v === "object" && !Array.isArray(v));
      result[key] = both ? merged(base[key], value) : value;
    }
    return result;
  };

  const layoutOf = (chart) => {
    const style = getComputedStyle(root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = {
      gridcolor: colour("--grid"), linecolor: colour("--line"), zerolinecolor: colour("--line"),
      automargin: true, exponentformat: "power", title: { standoff: 6, font: { size: 12 } },
    };
    const base = {
      margin: { l: 44, r: 10, t: 8, b: 36 }, font: { color: colour("--text"), size: 12, family: "system-ui, sans-serif" },
      paper_bgcolor: colour("--card"), plot_bgcolor: colour("--card"), xaxis: axis, yaxis: axis,
      showlegend: false, hovermode: "closest", legend: { bgcolor: "rgba(0,0,0,0)" },
      // A finger that scrolls the page must not zoom a chart.
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    };
    return merged(base, chart.layout);
  };

  const isShown = (trace) => {
    const meta = trace.meta ?? {};
    return (meta.view === undefined || meta.view === state.view)
      && !(meta.label !== undefined && state.hidden.has(`${state.view}/${meta.label}`))
      && state.layers.get(meta.layer) !== false;
  };

  // Which points no other is at least as good as on both axes and better on one.
  const undominated = (points) => {
    const order = points.map((_, i) => i).sort((i, j) => points[j][0] - points[i][0] || points[j][1] - points[i][1]);
    const front = new Set();
    let best = -Infinity, last = null;
    for (const i of order) {
      const [x, y] = points[i];
      if (y > best) { front.add(i); best = y; last = points[i]; }
      else if (last && x === last[0] && y === last[1]) front.add(i);
    }
    return front;
  };

  const withFront = (traces, [x, y]) => {
    const places = traces.flatMap((trace, t) => trace.x.map((_, i) => [t, i]));
    const points = places.map(([t, i]) => [x * traces[t].x[i], y * traces[t].y[i]]);
    const front = undominated(points);
    const greyed = traces.map((trace) => ({ ...trace, marker: { ...trace.marker, color: [], opacity: [] } }));
    places.forEach(([t, i], place) => {
      const own = traces[t].marker?.color ?? "#2f7ed8";
      greyed[t].marker.color.push(front.has(place) ? own : "#8a8f96");
      greyed[t].marker.opacity.push(front.has(place) ? 1 : 0.4);
    });
    const line = [...front].map((place) => places[place]).map(([t, i]) => [traces[t].x[i], traces[t].y[i]]).sort((a, b) => a[0] - b[0]);
    const drawnFront = {
      type: "scatter", mode: "lines", name: "Pareto front", x: line.map((p) => p[0]), y: line.map((p) => p[1]),
      line: { color: "#8a8f96", width: 1, dash: "dot" }, hoverinfo: "skip",
    };
    return [drawnFront, ...greyed];
  };

  const figureOf = (chart) => {
    const shown = chart.data.filter(isShown);
    const pareto = chart.layout.meta?.pareto;
    // Plotly writes into what it is given.
    return { data: structuredClone(pareto ? withFront(shown, pareto) : shown), layout: structuredClone(layoutOf(chart)) };
  };

  const draw = (figure) => {
    const { data: traces, layout } = figureOf(data.charts[figure.id]);
    Plotly.react(figure.querySelector(".plot"), traces, layout, { displayModeBar: false, responsive: true, doubleClickDelay: 400 });
    drawn.add(figure);
  };

  // What has come near the window is drawn, the rest when it does.
  const redraw = () => drawn.forEach((figure) => figure.hidden || draw(figure));
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting && !drawn.has(target)) draw(target);
    }
  }, { rootMargin: "400px" });

  const save = (figure, format) => {
    const chart = data.charts[figure.id];
    const { data: traces, layout } = figureOf(chart);
    const title = chart.unit ? `${chart.title} (${chart.unit})` : chart.title;
    const escaped = title.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    const whole = merged(layout, {
      title: { text: escaped, x: 0.02, font: { size: 15 } }, margin: { t: 48 }, showlegend: true,
    });
    const filename = title.replace(/[^\p{L}\p{N}]+/gu, "_").replace(/^_|_$/g, "").slice(0, 80) || "chart";
    Plotly.downloadImage({ data: traces, layout: whole }, { format, filename, width: 900, height: 560, scale: format === "png" ? 2 : 1 });
  };

  for (const figure of document.querySelectorAll(".chart")) {
    near.observe(figure);
    for (const button of figure.querySelectorAll("[data-format]")) {
      button.addEventListener("click", () => save(figure, button.dataset.format));
    }
  }

  for (const select of document.querySelectorAll(".choice select")) {
    const choose = () => {
      for (const figure of select.closest("section").querySelectorAll("[data-choice]")) {
        figure.hidden = figure.dataset.choice !== select.value;
        if (!figure.hidden && drawn.has(figure)) draw(figure);
      }
    };
    select.addEventListener("change", choose);
    choose(); // a browser may bring back an earlier choice
  }

  // ---- controls ----

  const controls = document.getElementById("controls");
  const legend = element("div", { class: "legend", role: "group", "aria-label": "Legend" });
  const fillLegend = () => {
    const view = data.views.find((v) => v.name === state.view);
    legend.replaceChildren(...(view?.legend ?? []).map(([label, colour]) => {
      const key = `${view.name}/${label}`;
      const button = element("button", { type: "button", "aria-pressed": String(!state.hidden.has(key)) }, label);
      button.style.setProperty("--own", colour);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(key)) state.hidden.add(key);
        button.setAttribute("aria-pressed", String(!state.hidden.has(key)));
        redraw();
      });
      return button;
    }));
  };
  const switched = (input, title) => element("label", {}, input, title);
  if (data.views.length) controls.append(legend);
  fillLegend();
  if (data.views.length > 1) {
    controls.append(element("div", { role: "group", "aria-label": "Curves" }, ...data.views.map((view, i) => switched(
      element("input", { type: "radio", name: "view", checked: i === 0, value: view.name, onchange: () => {
        state.view = view.name;
        fillLegend();
        redraw();
      } }), view.title))));
  }
  if (data.layers.length) {
    controls.append(element("div", { role: "group", "aria-label": "Layers" }, ...data.layers.map((layer) => switched(
      element("input", { type: "checkbox", checked: layer.shown, autocomplete: "off", onchange: (event) => {
        state.layers.set(layer.name, event.target.checked);
        redraw();
      } }), layer.title))));
  }
  controls.hidden = !controls.children.length;

  themed();
  return { data, element };
})();
