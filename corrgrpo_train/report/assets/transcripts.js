"use strict";
// The browser of transcripts. What models and tools wrote goes into text nodes alone, never into markup.
(() => {
  const { data, element } = window.report;
  const { rows, prompts, runs, total } = data.transcripts;
  const PAGE = 50;
  const root = document.getElementById("browser");
  const number = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toString());
  const distinct = (values) => [...new Set(values)];
  const largest = rows.reduce((most, row) => Math.max(most, Math.abs(row.advantage ?? 0)), 0) || 1;
  let found = [], first = 0, open = null, colours = "none";

  // ---- filters ----

  const select = (title, name, values) => {
    const made = element("select", { name }, element("option", { value: "" }, "all"));
    made.append(...values.map(([value, text]) => element("option", { value }, text)));
    return [made, element("label", {}, title, made)];
  };
  const range = (title, step) => {
    const [from, to] = ["from", "to"].map((end) => element("input", { type: "number", step, placeholder: end, "aria-label": `${title}, ${end}` }));
    return [from, to, element("label", {}, title, element("span", { class: "pair" }, from, to))];
  };
  const entry = (title) => {
    const made = element("input", { type: "search" });
    return [made, element("label", {}, title, made)];
  };
  const [run, runLabel] = select("Run", "run", runs.map((label, i) => [i, label]));
  const [kind, kindLabel] = select("From", "kind", distinct(rows.map((r) => r.kind)).map((k) => [k, k === "step" ? "training" : k]));
  const [status, statusLabel] = select("Status", "status", distinct(rows.map((r) => r.status)).sort().map((s) => [`=${s}`, s || "none"]));
  const [stepFrom, stepTo, stepLabel] = range("Step", 1);
  const [rewardFrom, rewardTo, rewardLabel] = range("Reward", "any");
  const [task, taskLabel] = entry("Task contains");
  const [text, textLabel] = entry("Answer contains");
  const [sort, sortLabel] = select("Order", "order", [["up", "reward, rising"], ["down", "reward, falling"], ["advantage", "advantage, falling"]]);
  sort.options[0].textContent = "as in the run";
  const form = element("form", { class: "filters", autocomplete: "off", "aria-label": "Filters" },
    runs.length > 1 ? runLabel : null, kindLabel, stepLabel, taskLabel, statusLabel, rewardLabel, textLabel, sortLabel);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => filter());
  form.addEventListener("reset", () => setTimeout(filter));

  const within = (value, from, to) => {
    if (from.value === "" && to.value === "") return true;
    return value !== null && (from.value === "" || value >= +from.value) && (to.value === "" || value <= +to.value);
  };
  const said = (row) => row.parts.map((part) => part.said?.join("") ?? "").join("\n");

  const filter = () => {
    const inTask = task.value.toLowerCase(), inText = text.value.toLowerCase();
    found = rows.filter((row) => (run.value === "" || row.run === +run.value)
      && (kind.value === "" || row.kind === kind.value)
      && (status.value === "" || `=${row.status}` === status.value)
      && within(row.step, stepFrom, stepTo) && within(row.reward, rewardFrom, rewardTo)
      && (inTask === "" || row.task.toLowerCase().includes(inTask))
      && (inText === "" || said(row).toLowerCase().includes(inText)));
    const low = (value) => value ?? -Infinity;
    const orders = {
      up: (a, b) => (a.reward ?? Infinity) - (b.reward ?? Infinity) || 0,
      down: (a, b) => low(b.reward) - low(a.reward) || 0,
      advantage: (a, b) => low(b.advantage) - low(a.advantage) || 0,
    };
    if (sort.value) found.sort(orders[sort.value]);
    first = 0;
    list();
    show(found[0] ?? null);
  };

  // ---- list, a page at a time ----

  const count = element("span", { role: "status" });
  const earlier = element("button", { type: "button", onclick: () => turn(-PAGE) }, "Earlier");
  const later = element("button", { type: "button", onclick: () => turn(PAGE) }, "Later");
  const clear = element("button", { type: "button", onclick: () => form.reset() }, "Clear filters");
  const entries = element("ol", { class: "list", "aria-label": "Transcripts found" });
  const reader = element("article", { class: "reader", "aria-label": "Transcript" });
  const turn = (by) => {
    first += by;
    list();
    entries.scrollTop = 0;
  };

  const list = () => {
    const last = Math.min(first + PAGE, found.length);
    const sampled = rows.length < total ? `; ${rows.length} of the ${total} in the run folders are on this page` : "";
    count.textContent = found.length ? `${first + 1} to ${last} of ${found.length}${sampled}` : `No transcript is like that${sampled}`;
    earlier.disabled = first === 0;
    later.disabled = last >= found.length;
    entries.hidden = !found.length;
    entries.replaceChildren(...found.slice(first, last).map((row) => {
      const button = element("button", { type: "button", "aria-current": String(row === open) },
        element("bdi", {}, row.task || "no task"), element("span", { class: "value" }, number(row.reward)),
        element("small", {}, [`${row.kind} ${row.step}`, row.group === null ? "" : `group ${row.group}.${row.member}`, row.status,
          runs.length > 1 ? runs[row.run] : ""].filter(Boolean).join(" · ")),
        element("small", { class: "value" }, row.advantage === null ? "" : `A ${number(row.advantage)}`));
      button.addEventListener("click", () => {
        for (const other of entries.querySelectorAll("[aria-current=true]")) other.setAttribute("aria-current", "false");
        button.setAttribute("aria-current", "true");
        show(row);
        if (matchMedia("(max-width: 48rem)").matches) reader.scrollIntoView();
      });
      return element("li", {}, button);
    }));
  };

  // ---- one transcript ----

  const tint = (row, logprob) => {
    if (colours === "logprob" && logprob !== null) return `rgba(224, 123, 57, ${Math.min(1, -logprob / 5) * 0.75})`;
    if (colours === "advantage" && row.advantage) {
      const strength = 0.1 + (Math.abs(row.advantage) / largest) * 0.55;
      return row.advantage > 0 ? `rgba(47, 126, 216, ${strength})` : `rgba(224, 90, 57, ${strength})`;
    }
    return "";
  };

  const token = (row, piece, logprob) => {
    const span = element("span", { class: piece.includes("\n") ? "token newline" : "token", title: logprob === null ? undefined : `log-probability ${logprob}, probability ${Math.exp(logprob).toPrecision(3)}` }, piece);
    const background = tint(row, logprob);
    if (background) span.style.backgroundColor = background;
    return span;
  };

  // Token spans, those of a tool call in a fold of their own.
  const saidPart = (row, part) => {
    const whole = part.said.join("");
    const box = element("div", { class: "said", dir: "auto" });
    const calls = [...whole.matchAll(/<tool_call>[^]*?(?:<\/tool_call>|$)/g)].map((m) => [m.index, m.index + m[0].length, m[0]]);
    let offset = 0, into = box, until = 0;
    part.said.forEach((piece, i) => {
      const end = offset + piece.length;
      const call = calls[0];
      if (into === box && call && end > call[0]) {
        into = element("div");
        until = call[1];
        const name = /"name"\s*:\s*"([^"]{1,80})"|<function=([^>]{1,80})>/.exec(call[2]);
        box.append(element("details", { class: "call" }, element("summary", {}, "Tool call", element("bdi", {}, name ? `: ${name[1] ?? name[2]}` : "")), into));
      }
      into.append(token(row, piece, part.logprobs[i]));
      offset = end;
      if (into !== box && offset >= until) {
        into = box;
        while (calls.length && calls[0][1] <= offset) calls.shift();
      }
    });
    if (part.cut) box.append(element("em", {}, ` [${part.cut} more tokens are in the JSONL file]`));
    return box;
  };

  const folded = (title, content) => element("details", { class: "given" }, element("summary", {}, title),
    element("div", { class: "said", dir: "auto" }, content));
  const facts = (pairs) => element("dl", { class: "facts" }, ...pairs.map(([name, value]) =>
    element("div", {}, element("dt", {}, element("bdi", {}, name)), element("dd", {}, element("bdi", {}, value)))));

  const colouring = () => element("fieldset", { class: "colours" }, element("legend", {}, "Colour tokens by"),
    ...[["none", "nothing"], ["logprob", "log-probability"], ["advantage", "advantage"]].map(([value, title]) => element("label", {},
      element("input", { type: "radio", name: "colours", value, checked: colours === value, autocomplete: "off", onchange: () => {
        colours = value;
        show(open);
        reader.querySelector(`[name=colours][value=${value}]`).focus();
      } }), title)), key());
  const key = () => {
    const sample = (title, background) => {
      const made = element("span", { class: "key" }, title);
      made.style.backgroundColor = background;
      return made;
    };
    if (colours === "logprob") return element("span", {}, sample("certain", "transparent"), sample("p = 8 %", "rgba(224, 123, 57, 0.38)"), sample("p < 1 %", "rgba(224, 123, 57, 0.75)"));
    if (colours === "advantage") return element("span", {}, sample("below its group", "rgba(224, 90, 57, 0.5)"), " ", sample("above its group", "rgba(47, 126, 216, 0.5)"));
    return null;
  };

  const show = (row) => {
    const opened = row === open ? [...reader.querySelectorAll("details")].map((details) => details.open) : [];
    open = row;
    if (row === null) {
      reader.replaceChildren(element("p", { class: "small" }, "No transcript chosen."));
      return;
    }
    reader.replaceChildren(...[
      element("h3", {}, element("bdi", {}, row.task || "no task")),
      facts([["run", runs[row.run]], ["from", `${row.kind} ${row.step}`], ["group", row.group === null ? "–" : `${row.group}.${row.member}`],
        ["status", row.status || "–"], ["reward", number(row.reward)], ["advantage", number(row.advantage)]]),
      facts(Object.entries(row.components).map(([name, value]) => [name, number(value)])),
      Object.keys(row.metrics).length ? folded("Metrics", Object.entries(row.metrics).map(([name, value]) => `${name} ${number(value)}`).join("\n")) : null,
      row.error ? element("p", { class: "note" }, row.error) : null,
      colouring(),
      folded(`Prompt: ${prompts[row.prompt].length} characters`, prompts[row.prompt]),
      ...row.parts.flatMap((part) => (part.said
        ? [element("p", { class: "turn" }, `Sampled: ${part.said.length + (part.cut ?? 0)} tokens`), saidPart(row, part)]
        : [folded(`Given to the policy: ${part.given.length} characters`, part.given)])),
    ].filter((child) => child !== null));
    [...reader.querySelectorAll("details")].forEach((details, i) => { details.open = opened[i] ?? false; });
  };

  root.append(form, element("div", { class: "found" }, count, earlier, later, clear), element("div", { class: "panes" }, entries, reader));
  filter();
})();
