// Inside: how a word becomes a vector, step by step, each with its formula; drawn from the live model.
import { post } from "../api.js";
import { make, makeChips, makeMixer, makeTakeaway, makeTitle, makeWords, readCount } from "../controls.js";
import { choose, INSIDE } from "../examples.js";
import { say } from "../labels.js";
import { mixLayers } from "../maths.js";
import { colour, draw, drawing, shade, text } from "../pictures.js";
import { readWords } from "../reading.js";
import { shorten } from "../sentences.js";
import { writeFormula } from "./formulas.js";

const WIDE = 740; // where there is room
const SHOWN = 3; // of the strongest filters of each width

export function openInside(root, page) {
  const examples = choose(INSIDE, page.model);
  const first = Object.values(examples)[0];
  let content = page.state.text ?? first.text;
  let at = readCount(page.state.at, page.state.text ? 0 : first.at);
  let found = null;

  const head = make("div", { class: "bar" });
  const field = make("input", {
    type: "text",
    "aria-label": say("sentence"),
    spellcheck: "false",
    autocomplete: "off",
    change: () => {
      content = field.value.trim();
      at = 0;
      load();
    },
  });
  const line = make("p", { class: "spoken" });
  const steps = make("div", { class: "steps results" });
  const mixer = makeMixer(page, page.model.layers, drawLayers);
  const layersFigure = make("figure", { class: "map scrolls" });
  root.append(
    makeTitle("insideTitle", "insideIntro"),
    head,
    field,
    line,
    steps,
    makeTakeaway("inside", picture, table),
  );

  async function load() {
    field.value = content;
    const name = Object.keys(examples).find((each) => examples[each].text === content);
    head.replaceChildren(
      makeChips(say("examples"), Object.keys(examples), name, (chosen) => {
        ({ text: content, at } = examples[chosen]);
        load();
      }),
    );
    await page.attempt(async (isWanted) => {
      const [words] = await readWords([content], page.model.name);
      if (!words.length) return;
      at = Math.min(Math.max(at, 0), words.length - 1);
      const trace = await post("/inside", { model: page.model.name, word: words[at].text });
      if (!isWanted()) return;
      found = { words, trace };
      drawAll();
    });
  }

  function drawAll() {
    if (!found) return;
    const isFirst = content === first.text && at === first.at;
    page.save({ text: content === first.text ? null : content, at: isFirst ? null : at });
    const hadFocus = line.contains(document.activeElement);
    line.replaceChildren(
      makeWords(content, found.words, {
        choose: (i) => {
          at = i;
          load();
        },
        mark: (i) => ({ chosen: i === at }),
      }),
    );
    if (hadFocus) line.querySelector('[aria-pressed="true"]')?.focus();
    const { trace } = found;
    const { widths } = trace;
    const gate = trace.highways.length ? (100 * trace.highways.reduce((a, b) => a + b, 0)) / trace.highways.length : 0;
    const room = roomOf();
    steps.replaceChildren(
      makeStep(
        "stepBytes",
        { columns: trace.columns, width: widths.character },
        writeFormula("bytes", trace.activation),
        drawBytes(trace, room),
      ),
      makeStep(
        "stepFilters",
        { first: trace.filters[0].width, last: trace.filters.at(-1).width },
        writeFormula("filters", trace.activation),
        drawFilters(trace, room),
      ),
      makeStep(
        "stepHighway",
        { open: gate.toFixed(0), width: widths.word },
        writeFormula("highway", trace.activation),
        drawWidths(trace, room),
      ),
      makeStep(
        "stepDirections",
        { layers: trace.lstm_layers },
        writeFormula("directions", trace.activation),
        drawDirections(found.words, at, room),
      ),
      makeStep(
        "stepLayers",
        { width: widths.vector },
        writeFormula("mix", trace.activation),
        layersFigure,
        mixer.element,
      ),
    );
    drawLayers();
  }

  /** What a drawing may take of the width: all of a phone, the wider column elsewhere. */
  function roomOf() {
    return Math.min(WIDE, root.clientWidth > 900 ? root.clientWidth * 0.63 : root.clientWidth);
  }

  function drawLayers() {
    if (found)
      layersFigure.replaceChildren(drawStrips(found.words[at].layers, mixer.weights(), mixer.gamma(), roomOf()));
  }

  function picture() {
    if (!found) return null;
    const parts = [
      drawBytes(found.trace, WIDE),
      drawFilters(found.trace, WIDE),
      drawWidths(found.trace, WIDE),
      drawDirections(found.words, at, WIDE),
      drawStrips(found.words[at].layers, mixer.weights(), mixer.gamma(), WIDE),
    ];
    const titles = ["stepBytes", "stepFilters", "stepHighway", "stepDirections", "stepLayers"];
    const width = 40 + Math.max(...parts.map((part) => part.viewBox.baseVal.width));
    const svg = drawing(width, 10, say("insideTitle"));
    let y = 20;
    parts.forEach((part, i) => {
      svg.append(
        text(20, y + 16, say(titles[i]), { size: 16, weight: 600 }),
        draw("g", { transform: `translate(20 ${y + 30})` }, ...part.childNodes),
      );
      y += part.viewBox.baseVal.height + 60;
    });
    svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
    return svg;
  }

  function table() {
    if (!found) return null;
    const { trace, words } = found;
    const mixed = mixLayers(words[at].layers, mixer.weights(), mixer.gamma());
    return [
      ["step", "what", "value", "place", "width"],
      ...trace.symbols.map((symbol, i) => ["symbol", symbol.marker || symbol.text || symbol.hex, symbol.id, i, 1]),
      ...trace.filters.flatMap((filter) =>
        filter.strongest.map((each) => [
          "filter",
          `channel ${each.channel}`,
          each.value.toFixed(5),
          each.begin,
          filter.width,
        ]),
      ),
      ...trace.highways.map((value, i) => ["highway", `gate ${i + 1}`, value.toFixed(5), "", ""]),
      ...Object.entries(trace.widths).map(([name, value]) => ["width", name, value, "", ""]),
      ...words[at].layers.flatMap((layer, j) =>
        Array.from(layer, (value, d) => [`layer ${j}`, `number ${d}`, value.toFixed(6), "", ""]),
      ),
      ...Array.from(mixed, (value, d) => ["mix", `number ${d}`, value.toFixed(6), "", ""]),
    ];
  }

  load();
  return { redraw: drawAll };
}

function makeStep(name, values, formula, figure, more = null) {
  const box = make("div", { class: "formula-box" });
  box.innerHTML = formula; // a constant of ours
  const shown = figure instanceof SVGElement ? make("figure", { class: "map scrolls" }, figure) : figure;
  return make(
    "section",
    { class: "step" },
    make(
      "div",
      { class: "step-text" },
      make("h2", {}, say(name)),
      make("p", {}, say(`${name}Note`, values)),
      box,
      more,
    ),
    shown,
  );
}

const nameOf = (symbol) =>
  symbol.marker ? say(symbol.marker === "begin" ? "beginMark" : "endMark") : symbol.text || symbol.hex.toUpperCase();

/** Where the first byte stands and how wide each is: the same in both drawings, so that windows lie below their bytes. */
function placeBytes({ symbols, filters }, room) {
  const places = Math.max(
    symbols.length,
    ...filters.flatMap((filter) => filter.strongest.slice(0, SHOWN).map((each) => each.begin + filter.width)),
  );
  const left = room < 500 ? 70 : 112;
  return { places, left, box: Math.max(20, Math.min(46, (room - left - 8) / places)) };
}

function drawBytes(trace, room) {
  const { symbols, columns } = trace;
  const { left, box } = placeBytes(trace, room);
  const rest = columns - symbols.length;
  const width = left + box * symbols.length + (rest > 0 ? 90 : 4);
  const svg = drawing(width, 78, say("stepBytes"));
  symbols.forEach((symbol, i) => {
    const isMark = Boolean(symbol.marker);
    svg.append(
      draw("rect", {
        x: left + i * box + 2,
        y: 4,
        width: box - 4,
        height: 42,
        rx: 7,
        fill: isMark ? "none" : colour("accent-soft"),
        stroke: isMark ? colour("line") : colour("accent"),
        "stroke-opacity": isMark ? 1 : 0.4,
      }),
      text(left + (i + 0.5) * box, 31, nameOf(symbol), {
        anchor: "middle",
        size: isMark ? (box < 36 ? 8.5 : 10.5) : box < 36 ? 14 : 17,
        fill: isMark ? colour("quiet") : null,
      }),
      text(left + (i + 0.5) * box, 66, symbol.hex ? symbol.hex : symbol.id, {
        anchor: "middle",
        size: 11,
        fill: colour("quiet"),
      }),
    );
  });
  if (rest > 0) svg.append(text(left + symbols.length * box + 10, 31, `+ ${rest} × ∅`, { fill: colour("quiet") }));
  return svg;
}

function drawFilters(trace, room) {
  const { symbols, filters } = trace;
  const { places, left, box } = placeBytes(trace, room);
  const values = filters.flatMap((filter) => filter.strongest.map((each) => each.value));
  const highest = Math.max(...values, 1e-9);
  const svg = drawing(left + places * box + 8, 10, say("stepFilters"));
  for (let i = 0; i < places; i++) {
    svg.append(
      text(left + (i + 0.5) * box, 16, i < symbols.length ? nameOf(symbols[i]) : "∅", {
        anchor: "middle",
        size: i < symbols.length && !symbols[i].marker ? 15 : box < 36 ? 9.5 : 11,
        fill: i < symbols.length ? null : colour("quiet"),
      }),
    );
  }
  let y = 30;
  for (const filter of filters) {
    svg.append(
      text(0, y + 13, `${say("width")} ${filter.width}`, { size: 12.5, weight: 600 }),
      text(0, y + 28, `${filter.channels} ${say("filters")}`, { size: 11, fill: colour("quiet") }),
    );
    for (const each of filter.strongest.slice(0, SHOWN)) {
      const shown = draw(
        "rect",
        {
          x: left + each.begin * box + 3,
          y,
          width: filter.width * box - 6,
          height: 13,
          rx: 4,
          fill: shade(0.2 + (0.8 * Math.max(0, each.value)) / highest),
        },
        draw("title", {}, `${say("filter")} ${each.channel}: ${each.value.toFixed(3)}`),
      );
      shown.dataset.filter = each.channel;
      svg.append(shown);
      y += 16;
    }
    y += 12;
  }
  svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${y}`);
  svg.setAttribute("height", y);
  return svg;
}

function drawWidths({ widths, highways, symbols }, room) {
  const rows = [
    [say("characters"), symbols.length * widths.character, `${symbols.length} × ${widths.character}`],
    [say("features"), widths.features, `${widths.features}`],
    ...highways.map((open) => [say("gateOpen"), widths.features, `${(100 * open).toFixed(0)} %`, open]),
    [say("wordWidth"), widths.word, `${widths.word}`],
    [say("cell"), widths.cell, `2 × ${widths.cell}`],
    [say("direction"), widths.direction, `2 × ${widths.direction}`],
    [say("vector"), widths.vector, `${widths.vector}`],
  ];
  const [width, row] = [Math.min(560, room), 34];
  const most = Math.max(...rows.map(([, size]) => size));
  const svg = drawing(width, rows.length * row + 4, say("widths"));
  rows.forEach(([name, size, label, open], i) => {
    const long = Math.max(3, ((width - 250) * size) / most);
    const y = i * row;
    svg.append(
      text(150, y + 18, shorten(name, 24), { anchor: "end", size: 12.5, fill: colour("quiet") }),
      draw("rect", {
        x: 164,
        y: y + 4,
        width: long,
        height: 20,
        rx: 5,
        fill: open === undefined ? shade(0.62) : colour("grid"),
      }),
      open === undefined
        ? null
        : draw("rect", { x: 164, y: y + 4, width: long * open, height: 20, rx: 5, fill: shade(0.85) }),
      text(164 + long + 10, y + 18, label, { size: 12.5 }),
    );
  });
  return svg;
}

function drawDirections(words, at, room) {
  const step = Math.max(46, Math.min(76, room / words.length));
  const width = Math.max(300, words.length * step);
  const svg = drawing(width, 170, say("stepDirections"));
  words.forEach((word, i) => {
    const x = (i + 0.5) * step;
    svg.append(
      text(x, 92, shorten(word.text, Math.floor(step / 7)), {
        anchor: "middle",
        size: step < 70 ? 13.5 : 15,
        weight: i === at ? 700 : null,
        fill: i === at ? colour("accent") : null,
      }),
    );
    svg.append(mark(x, 46, i <= at, i === at), mark(x, 124, i >= at, i === at));
    if (i < at) svg.append(arrow(x + 12, x + step - 12, 46));
    if (i > at) svg.append(arrow(x - 12, x - step + 12, 124));
  });
  svg.append(
    text(4, 18, `→ ${say("forward")}`, { size: 12.5, fill: colour("quiet") }),
    text(width - 4, 158, `← ${say("backward")}`, { size: 12.5, anchor: "end", fill: colour("quiet") }),
  );
  return svg;

  function mark(x, y, isRead, isWord) {
    return draw("circle", {
      cx: x,
      cy: y,
      r: isWord ? 10 : 7,
      fill: isRead ? (isWord ? colour("accent") : shade(0.5)) : "none",
      stroke: isRead ? "none" : colour("line"),
    });
  }
  function arrow(x1, x2, y) {
    const back = Math.sign(x2 - x1) * 6;
    return draw("path", {
      d: `M${x1} ${y}H${x2}M${x2 - back} ${y - 4}L${x2} ${y}L${x2 - back} ${y + 4}`,
      stroke: colour("accent"),
      "stroke-width": 1.5,
      fill: "none",
    });
  }
}

function drawStrips(layers, weights, gamma, room) {
  const mixed = mixLayers(layers, weights, gamma);
  const rows = [
    ...layers.map((layer, j) => [
      `h${"₀₁₂₃₄₅₆₇₈₉"[j] ?? j}`,
      layer,
      `s = ${weights[j].toFixed(2)}`,
      0.25 + 0.75 * weights[j],
    ]),
    ["ELMo", mixed, `γ = ${gamma.toFixed(2)}`, 1],
  ];
  const [left, wide, row] = [48, Math.min(512, room - 116), 46];
  const svg = drawing(left + wide + 68, rows.length * row + 30, say("stepLayers"));
  const sizes = layers.flatMap((layer) => Array.from(layer, Math.abs)).sort((a, b) => a - b);
  const largest = sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
  rows.forEach(([name, values, label, strength], i) => {
    const y = i * row + (i === layers.length ? 10 : 0);
    const step = wide / values.length;
    svg.append(
      text(0, y + 21, name, { size: 14, weight: i === layers.length ? 700 : null, "font-style": "italic" }),
      text(left + wide + 12, y + 21, label, { size: 12, fill: colour("quiet") }),
    );
    for (const [sign, fill] of [
      [1, colour("accent")],
      [-1, colour("quiet")],
    ]) {
      const levels = [0.25, 0.5, 0.75, 1];
      levels.forEach((level, l) => {
        const d = Array.from(values, (value, k) => {
          const part = Math.min(1, (sign * value) / largest);
          return part > level - 0.25 && part > 0.04 && part <= (l === 3 ? 2 : level)
            ? `M${(left + (k + 0.5) * step).toFixed(1)} ${y + 2}v30`
            : "";
        }).join("");
        if (d)
          svg.append(
            draw("path", {
              d,
              stroke: fill,
              "stroke-width": (step * 0.95).toFixed(2),
              "stroke-opacity": (level * strength).toFixed(2),
              fill: "none",
            }),
          );
      });
    }
  });
  const y = rows.length * row + 22;
  svg.append(
    text(left + wide / 4, y, `→ ${say("forward")}`, { size: 11.5, anchor: "middle", fill: colour("quiet") }),
    text(left + (3 * wide) / 4, y, `← ${say("backward")}`, { size: 11.5, anchor: "middle", fill: colour("quiet") }),
    draw("path", { d: `M${left + wide / 2} 0V${rows.length * row + 10}`, stroke: colour("paper"), "stroke-width": 3 }),
  );
  return svg;
}
