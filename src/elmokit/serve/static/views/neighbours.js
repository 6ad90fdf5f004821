// Neighbours: the words in context that are nearest to the chosen one, among the loaded text.
import { make, makeChips, makeMixer, makeTakeaway, makeTextField, makeTitle, makeWords } from "../controls.js";
import { choose, NEIGHBOURS } from "../examples.js";
import { say } from "../labels.js";
import { dot, mixLayers, toUnit } from "../maths.js";
import { colour, draw, drawing, shade, text } from "../pictures.js";
import { readWords } from "../reading.js";
import { cutAround, joinWords } from "../sentences.js";

const MOST_WORDS = 4000;
const SHOWN = 15;

export function openNeighbours(root, page) {
  const examples = choose(NEIGHBOURS, page.model);
  const first = Object.values(examples)[0];
  let content = page.state.text ?? first.text;
  let at = page.state.at ?? (page.state.text ? "0:0" : first.at);
  let isOther = page.state.other === "1";
  let isEditing = false;
  let lines = [];
  let words = [];
  let nearest = [];

  const head = make("div", { class: "bar" });
  const passage = make("div", { class: "passage" });
  const chosenLine = make("p", { class: "reading" });
  const list = make("ol", { class: "near results", "aria-live": "polite" });
  const other = make("input", {
    type: "checkbox",
    change: () => {
      isOther = other.checked;
      page.save({ other: isOther ? "1" : null });
      drawNearest();
    },
  });
  other.checked = isOther;
  const mixer = makeMixer(page, page.model.layers, drawNearest, { withGamma: false });
  root.append(
    makeTitle("neighboursTitle", "neighboursIntro"),
    make(
      "div",
      { class: "columns" },
      make("section", { class: "panel" }, head, passage),
      make(
        "section",
        { class: "panel" },
        chosenLine,
        list,
        make("label", { class: "check" }, other, say("otherWords")),
        mixer.element,
        makeTakeaway("neighbours", picture, table),
      ),
    ),
  );

  function drawHead() {
    const name = Object.keys(examples).find((each) => examples[each].text === content);
    head.replaceChildren(
      makeChips(say("examples"), Object.keys(examples), name, (chosen) => {
        ({ text: content, at } = examples[chosen]);
        isEditing = false;
        load();
      }),
      make(
        "button",
        {
          type: "button",
          class: "quiet-button",
          "aria-expanded": `${isEditing}`,
          click: () => {
            isEditing = !isEditing;
            if (isEditing) edit();
            else load();
          },
        },
        say(isEditing ? "done" : "edit"),
      ),
    );
  }

  function edit() {
    drawHead();
    const field = makeTextField(say("text"), content, () => {}, { rows: 18 });
    field.addEventListener("input", () => {
      content = field.value;
      at = "0:0";
    });
    passage.replaceChildren(field);
    field.focus();
  }

  async function load() {
    drawHead();
    await page.attempt(async (isWanted) => {
      let left = MOST_WORDS;
      lines = content
        .split("\n")
        .map((line) => line.trim())
        .filter((line) => {
          left -= (line.match(/[\p{Script=Han}\p{P}]|[^\s\p{Script=Han}\p{P}]+/gu) ?? []).length; // nearly the server's words
          return line && left > 0;
        });
      const read = lines.length ? await readWords(lines, page.model.name) : [];
      if (!isWanted()) return;
      words = read;
      drawPassage();
      drawNearest();
      if (left <= 0) page.tell(say("wordsCut"));
    });
  }

  function find() {
    const [line, place] = at.split(":").map(Number);
    return words[line]?.[place] ?? words.flat()[0];
  }

  function drawPassage() {
    const chosen = find();
    passage.replaceChildren(
      ...lines.map((line, number) =>
        make(
          "p",
          {},
          makeWords(line, words[number], {
            choose: (i) => pick(words[number][i]),
            mark: (i) => ({ chosen: words[number][i] === chosen }),
          }),
        ),
      ),
    );
  }

  function pick(word) {
    at = `${word.line}:${word.place}`;
    const buttonOf = (each) => passage.children[each.line].querySelectorAll(".word")[each.place];
    passage.querySelector('[aria-pressed="true"]')?.setAttribute("aria-pressed", "false");
    buttonOf(word).setAttribute("aria-pressed", "true");
    drawNearest();
  }

  function drawNearest() {
    const chosen = words.length ? find() : null;
    list.replaceChildren();
    chosenLine.replaceChildren();
    if (!chosen) return;
    page.save({
      text: content === first.text ? null : content,
      at: content === first.text && at === first.at ? null : at,
    });
    const target = toUnit(mixLayers(chosen.layers, mixer.weights()));
    nearest = words
      .flat()
      .filter(
        (word) =>
          word !== chosen &&
          /[\p{L}\p{N}]/u.test(word.text) &&
          !(isOther && word.text.toLowerCase() === chosen.text.toLowerCase()),
      )
      .map((word) => ({ word, cosine: dot(target, toUnit(mixLayers(word.layers, mixer.weights()))) }))
      .sort((a, b) => b.cosine - a.cosine)
      .slice(0, SHOWN);
    const [before, middle, after] = cutAround(chosen.words, chosen.inSentence, chosen.inSentence + 1);
    chosenLine.replaceChildren(before, make("b", {}, middle), after);
    list.replaceChildren(
      ...nearest.map(({ word, cosine }) => {
        const [left, own, right] = cutAround(word.words, word.inSentence, word.inSentence + 1, 90);
        const bar = make("span", { class: "bar-fill" });
        bar.style.width = `${Math.max(0, 100 * cosine)}%`;
        bar.style.backgroundColor = shade(0.25 + 0.6 * cosine);
        return make(
          "li",
          {},
          make(
            "button",
            {
              type: "button",
              class: "near-item",
              "data-cosine": cosine.toFixed(4),
              "data-word": word.text,
              click: () => pick(word),
            },
            make("span", { class: "near-word" }, own),
            make("span", { class: "near-value" }, cosine.toFixed(2)),
            make("span", { class: "near-bar" }, bar),
            make("span", { class: "near-context" }, left, make("b", {}, own), right),
          ),
        );
      }),
    );
  }

  function picture() {
    if (!nearest.length) return null;
    const chosen = find();
    const [width, row] = [760, 30];
    const [before, middle, after] = cutAround(chosen.words, chosen.inSentence, chosen.inSentence + 1, 84);
    const svg = drawing(
      width,
      60 + row * nearest.length,
      say("neighboursTitle"),
      draw(
        "text",
        { x: 16, y: 28, "font-size": 15 },
        before,
        draw("tspan", { "font-weight": 700, fill: colour("accent") }, middle),
        after,
      ),
    );
    nearest.forEach(({ word, cosine }, i) => {
      const y = 48 + row * i;
      const [left, own, right] = cutAround(word.words, word.inSentence, word.inSentence + 1, 58);
      svg.append(
        text(16, y + 15, own, { weight: 600 }),
        draw("rect", {
          x: 130,
          y: y + 4,
          width: Math.max(1, 130 * cosine),
          height: 14,
          rx: 3,
          fill: shade(0.25 + 0.6 * cosine),
        }),
        text(300, y + 15, cosine.toFixed(2), { anchor: "end", fill: colour("quiet") }),
        text(320, y + 15, left + own + right, { size: 12.5, fill: colour("quiet") }),
      );
    });
    return svg;
  }

  function table() {
    return [
      ["rank", "word", "cosine", "sentence", "line", "place"],
      ...nearest.map(({ word, cosine }, i) => [
        i + 1,
        word.text,
        cosine.toFixed(4),
        joinWords(word.words),
        word.line + 1,
        word.place + 1,
      ]),
    ];
  }

  load();
  return { redraw: drawNearest };
}
