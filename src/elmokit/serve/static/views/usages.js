// Usages: every occurrence of a word as a point on a map, coloured by cluster; two texts show drift.
import { make, makeChips, makeMixer, makeTakeaway, makeTextField, makeTitle, readCount, rove } from "../controls.js";
import { choose, USAGES } from "../examples.js";
import { say } from "../labels.js";
import { chooseClusters, cluster, cosine, mean, mixLayers, projectOnPlane, toUnit } from "../maths.js";
import { clusterColour, colour, draw, drawing, text } from "../pictures.js";
import { findFrequent, readUsesInText } from "../reading.js";
import { cutAround, joinWords } from "../sentences.js";

const MOST = 400; // uses of each text on the map
const LARGEST = 5e6; // bytes of a file
const EDGE = 34;

export function openUsages(root, page) {
  const examples = choose(USAGES, page.model);
  const first = Object.values(examples)[0];
  let { a, b = null, word } = page.state.a || page.state.word ? { a: first.a, word: "", ...page.state } : first;
  let k = Math.min(6, readCount(page.state.k, 0)); // 0: chosen by the silhouette
  let uses = [];
  let map = null;
  let places = null;
  let shown = 0;

  const fields = make("div", { class: "fields" });
  const figure = make("figure", { class: "map" });
  const reading = make("p", { class: "reading", "aria-live": "polite" });
  const facts = make("p", { class: "verdict" });
  const groups = make("div", { class: "groups results" });
  const chooser = make("div", { class: "chips", role: "group" });
  const mixer = makeMixer(page, page.model.layers, moveMap, { withGamma: false });
  root.append(
    makeTitle("usagesTitle", "usagesIntro"),
    make(
      "div",
      { class: "columns wide-right" },
      make("section", { class: "panel" }, fields),
      make(
        "section",
        { class: "panel" },
        figure,
        reading,
        facts,
        chooser,
        mixer.element,
        makeTakeaway("usages", drawWithTitle, table),
      ),
    ),
    groups,
  );

  function drawFields() {
    const name = Object.keys(examples).find((each) => examples[each].a === a && (examples[each].b ?? null) === b);
    const wordField = make("input", {
      type: "text",
      id: "usages-word",
      value: word,
      autocomplete: "off",
      spellcheck: "false",
      change: () => {
        word = wordField.value.trim();
        load();
      },
    });
    const frequent = findFrequent(`${a}\n${b ?? ""}`, 6);
    fields.replaceChildren(
      makeChips(say("examples"), Object.keys(examples), name, (chosen) => {
        ({ a, b = null, word } = examples[chosen]);
        k = 0;
        drawFields();
        load();
      }),
      make("label", { class: "field-label", for: "usages-word" }, say("word")),
      wordField,
      frequent.length
        ? makeChips(say("frequent"), frequent, word, (chosen) => {
            word = chosen;
            drawFields();
            load();
          })
        : "",
      makeSource(b === null ? "text" : "textA", a, (value) => {
        a = value;
      }),
      b === null
        ? ""
        : makeSource("textB", b, (value) => {
            b = value;
          }),
      make(
        "button",
        {
          type: "button",
          class: "quiet-button",
          click: () => {
            b = b === null ? "" : null;
            drawFields();
            load();
          },
        },
        say(b === null ? "addSecond" : "removeSecond"),
      ),
    );
  }

  function makeSource(label, value, take) {
    const changed = (content) => {
      take(content);
      drawFields();
      load();
    };
    const file = make("input", {
      type: "file",
      class: "unseen",
      "aria-label": say("openFile"),
      change: () => file.files[0] && openFile(file.files[0], changed),
    });
    const field = makeTextField(say(label), value, changed, { rows: b === null ? 12 : 7 });
    field.addEventListener("dragover", (event) => event.preventDefault());
    field.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      openFile(event.dataTransfer.files[0], changed);
    });
    return make(
      "div",
      { class: "source" },
      make(
        "div",
        { class: "bar" },
        make("span", { class: "field-label" }, say(label)),
        make("label", { class: "quiet-button file" }, file, say("openFile")),
      ),
      field,
    );
  }

  async function openFile(file, changed) {
    if (file.size > LARGEST) return page.tell(say("fileTooLarge"));
    try {
      changed(new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
    } catch {
      page.tell(say("notText"));
    }
  }

  async function load() {
    if (!word) word = findFrequent(`${a}\n${b ?? ""}`, 1)[0] ?? "";
    const isExample = a === first.a && b === null && word === first.word;
    page.save(isExample ? { a: null, b: null, word: null, k: k || null } : { a, b, word, k: k || null });
    await page.attempt(async (isWanted) => {
      const texts = b === null ? [a] : [a, b];
      const found = [];
      for (const [number, content] of texts.entries()) {
        if (word)
          found.push(
            ...(await readUsesInText(content, word, page.model.name, MOST)).map((use) => ({ ...use, text: number })),
          );
      }
      if (!isWanted()) return;
      uses = found;
      places = map = null;
      shown = 0;
      drawMap();
      if (!uses.length) page.tell(say(word ? "notThere" : "chooseWord"));
    });
  }

  /** While a slider moves, points move at once; the groups of many points follow when it rests. */
  let resting = 0;
  function moveMap() {
    clearTimeout(resting);
    const isSlow = map !== null && uses.length > 80 && map.labels.length === uses.length;
    drawMap({ keep: isSlow });
    if (isSlow) resting = setTimeout(() => root.contains(figure) && drawMap(), 250);
  }

  function drawMap({ keep = false } = {}) {
    if (uses.length < 2) {
      map = null;
      figure.replaceChildren();
      for (const part of [reading, facts, groups, chooser]) part.replaceChildren();
      if (uses.length) readOut(0);
      return;
    }
    const vectors = uses.map((use) => mixLayers(use.layers, mixer.weights()));
    const units = vectors.map(toUnit);
    const plane = projectOnPlane(units, places);
    places = plane.places;
    const chosen = keep ? map.k : k ? Math.min(k, uses.length) : chooseClusters(units);
    map = { vectors, plane, labels: keep ? map.labels : cluster(units, chosen), k: chosen };
    const svg = drawPoints();
    svg.removeAttribute("role");
    rove(svg, ".point");
    const hadFocus = figure.contains(document.activeElement);
    figure.replaceChildren(svg);
    if (hadFocus) svg.querySelectorAll(".point")[shown]?.focus();
    drawChooser();
    drawFacts();
    drawGroups();
    readOut(Math.min(shown, uses.length - 1));
  }

  function drawPoints(width = Math.min(680, Math.max(320, figure.clientWidth))) {
    const height = width > 500 ? Math.round(width * 0.7) : width;
    const { plane, labels } = map;
    const reach = [0, 1].map((c) => Math.max(...plane.places.map((place) => Math.abs(place[c]))) || 1);
    const scale = Math.min((width / 2 - EDGE) / reach[0], (height / 2 - EDGE) / reach[1]);
    const at = ([x, y]) => [width / 2 + x * scale, height / 2 - y * scale];
    const axis = (c) => say("component", { number: c + 1, percent: (100 * plane.fractions[c]).toFixed(0) });
    const svg = drawing(
      width,
      height,
      `${say("usagesTitle")}: ${word}`,
      draw("rect", {
        x: 0.5,
        y: 0.5,
        width: width - 1,
        height: height - 1,
        rx: 12,
        fill: colour("panel"),
        stroke: colour("line"),
      }),
      draw("path", {
        d: `M${EDGE} ${height / 2}H${width - EDGE}M${width / 2} ${EDGE}V${height - EDGE}`,
        stroke: colour("grid"),
        fill: "none",
      }),
      text(width - 14, height - 12, axis(0), { size: 11.5, anchor: "end", fill: colour("quiet") }),
      text(14, 22, axis(1), { size: 11.5, fill: colour("quiet") }),
    );
    if (b !== null) svg.append(...drawArrow(at));
    uses.forEach((use, i) => {
      const [x, y] = at(plane.places[i]);
      const look = {
        fill: clusterColour(labels[i]),
        "fill-opacity": 0.82,
        stroke: colour("panel"),
        "stroke-width": 1.5,
        class: "point",
      };
      const point =
        use.text === 0
          ? draw("circle", { cx: x, cy: y, r: 7, ...look })
          : draw("rect", { x: x - 6, y: y - 6, width: 12, height: 12, transform: `rotate(45 ${x} ${y})`, ...look });
      point.setAttribute("role", "img");
      point.setAttribute("aria-label", `${say("group")} ${labels[i] + 1}: ${joinWords(use.words)}`);
      point.dataset.use = i;
      point.dataset.group = labels[i];
      for (const event of ["pointerenter", "focus", "click"]) point.addEventListener(event, () => readOut(i));
      svg.append(point);
    });
    return svg;
  }

  function drawArrow(at) {
    const centres = [0, 1].map((number) => map.plane.places.filter((_, i) => uses[i].text === number));
    if (!centres.every((members) => members.length)) return [];
    const [[x1, y1], [x2, y2]] = centres.map((members) => at(mean(members)));
    const angle = Math.atan2(y2 - y1, x2 - x1);
    const tip = [0.4, -0.4].map((turn) => `L${x2 - 12 * Math.cos(angle + turn)} ${y2 - 12 * Math.sin(angle + turn)}`);
    return [
      draw("path", {
        d: `M${x1} ${y1}L${x2} ${y2}M${x2} ${y2}${tip[0]}M${x2} ${y2}${tip[1]}`,
        stroke: colour("ink"),
        "stroke-width": 2,
        fill: "none",
        "stroke-linecap": "round",
      }),
      text(x1, y1 + (y1 >= y2 ? 20 : -10), "A", { weight: 700, anchor: "middle" }),
      text(x2, y2 + (y1 >= y2 ? -10 : 20), "B", { weight: 700, anchor: "middle" }),
    ];
  }

  function readOut(i) {
    shown = i;
    const use = uses[i];
    const [before, middle, after] = cutAround(use.words, ...use.place);
    const dot = make("span", { class: "dot" });
    if (map) dot.style.backgroundColor = clusterColour(map.labels[i]);
    reading.replaceChildren(
      dot,
      b === null ? "" : make("span", { class: "from" }, "AB"[use.text]),
      before,
      make("b", {}, middle),
      after,
    );
    for (const point of figure.querySelectorAll(".point")) {
      const isShown = Number(point.dataset.use) === i;
      point.setAttribute("stroke", colour(isShown ? "ink" : "panel"));
      point.setAttribute("stroke-width", isShown ? 2.5 : 1.5);
    }
  }

  function drawChooser() {
    const names = [say("automatic"), "1", "2", "3", "4", "5", "6"].slice(0, Math.min(7, uses.length + 1));
    const hadFocus = chooser.contains(document.activeElement)
      ? [...chooser.querySelectorAll(".chip")].indexOf(document.activeElement)
      : -1;
    const chips = makeChips(say("groups"), names, k ? `${k}` : names[0], (chosen) => {
      k = Number(chosen) || 0;
      page.save({ k: k || null });
      drawMap();
    });
    chooser.replaceChildren(...chips.childNodes);
    rove(chooser, ".chip");
    if (hadFocus >= 0) chooser.querySelectorAll(".chip")[hadFocus]?.focus();
  }

  function drawFacts() {
    const parts = [`${say("uses", { count: uses.length })}.`];
    if (b !== null) {
      const sides = [0, 1].map((number) => map.vectors.filter((_, i) => uses[i].text === number));
      if (sides.every((side) => side.length))
        parts.push(`${say("drift")}: ${(1 - cosine(...sides.map(mean))).toFixed(2)} (${say("driftNote")}).`);
    }
    if ([0, 1].some((number) => uses.filter((use) => use.text === number).length === MOST)) parts.push(say("usesCut"));
    facts.textContent = parts.join(" ");
  }

  function drawGroups() {
    groups.replaceChildren(
      ...Array.from({ length: map.k }, (_, label) => {
        const members = uses.map((use, i) => ({ use, i })).filter(({ i }) => map.labels[i] === label);
        const dot = make("span", { class: "dot" });
        dot.style.backgroundColor = clusterColour(label);
        return make(
          "section",
          {},
          make("h2", {}, dot, `${say("group")} ${label + 1} `, make("span", { class: "count" }, `${members.length}`)),
          make(
            "ul",
            {},
            members.slice(0, 60).map(({ use, i }) => {
              const [before, middle, after] = cutAround(use.words, ...use.place, 120);
              return make(
                "li",
                { pointerenter: () => readOut(i) },
                b === null ? "" : make("span", { class: "from" }, "AB"[use.text]),
                before,
                make("b", {}, middle),
                after,
              );
            }),
          ),
        );
      }),
    );
  }

  function drawWithTitle() {
    if (!map) return null;
    const [width, height] = [680, 476];
    const inner = drawPoints(width);
    const svg = drawing(
      width,
      height + 74,
      inner.getAttribute("aria-label"),
      text(14, 26, `${word} – ${say("uses", { count: uses.length })}`, { size: 16, weight: 600 }),
      draw("g", { transform: "translate(0 40)" }, ...inner.childNodes),
    );
    for (let label = 0; label < map.k; label++) {
      svg.append(
        draw("circle", { cx: 22 + label * 80, cy: height + 56, r: 6, fill: clusterColour(label) }),
        text(34 + label * 80, height + 60, `${say("group")} ${label + 1}`, { size: 12 }),
      );
    }
    if (b !== null)
      svg.append(text(width - 14, height + 60, `● ${say("textA")}   ◆ ${say("textB")}`, { size: 12, anchor: "end" }));
    return svg;
  }

  function table() {
    if (!map) return null;
    return [
      ["text", "sentence", "word", "x", "y", "group"],
      ...uses.map((use, i) => [
        "AB"[use.text],
        joinWords(use.words),
        joinWords(use.words.slice(...use.place)),
        ...map.plane.places[i].map((value) => value.toFixed(4)),
        map.labels[i] + 1,
      ]),
    ];
  }

  drawFields();
  load();
  return { redraw: () => drawMap() };
}
