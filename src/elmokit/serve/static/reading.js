// Texts as views need them: the uses of a word, and all words, each with all layers.
import { post, Problem, readFloats } from "./api.js";

const MOST_CHARACTERS = 4000; // in one piece of a text: below what a server takes even where every character is a word
const REQUEST_CHARACTERS = 15000;

/** The uses of a word in texts, the vectors (layers × dim) of each, and the sentences that have it. */
export async function readUses(texts, word, model) {
  const answer = await post("/compare", { model, word, texts });
  const [num, numLayers, dim] = answer.shape;
  const floats = readFloats(answer.vectors);
  const layers = Array.from({ length: num }, (_, i) =>
    Array.from({ length: numLayers }, (_, j) => {
      const at = (i * numLayers + j) * dim;
      return floats.subarray(at, at + dim);
    }),
  );
  const uses = answer.uses.map((use, number) => ({
    number,
    label: use.label,
    sentence: use.sentence,
    inSentence: [use.begin, use.end],
  }));
  return { word, uses, layers, sentences: answer.sentences };
}

/** At most `most` uses of a word in a long text: only lines that could have it are sent, in several requests. */
export async function readUsesInText(content, word, model, most) {
  const spellings = word
    .toLowerCase()
    .split("|")
    .map((each) => each.trim())
    .filter(Boolean);
  const lines = content
    .split("\n")
    .flatMap(cutLine)
    .filter((line) => spellings.some((each) => mayHave(line.toLowerCase(), each)));
  const found = [];
  for (const request of gather(lines)) {
    if (found.length >= most) break;
    try {
      const part = await readUses(request, word, model);
      part.uses.forEach((use, i) =>
        found.push({ words: part.sentences[use.sentence].words, place: use.inSentence, layers: part.layers[i] }),
      );
    } catch (problem) {
      if (!(problem instanceof Problem) || problem.kind !== "Empty") throw problem;
    }
  }
  return found.slice(0, most);
}

/** Lines in groups that one request can hold. */
function gather(lines) {
  const groups = [[]];
  let size = 0;
  for (const line of lines) {
    size += line.length;
    if (size > REQUEST_CHARACTERS && groups.at(-1).length) {
      groups.push([]);
      size = line.length;
    }
    groups.at(-1).push(line);
  }
  return groups.filter((group) => group.length);
}

/** A line of a file may be a whole book: it is cut between sentences. */
function cutLine(line) {
  if (line.length <= MOST_CHARACTERS) return line.trim() ? [line.trim()] : [];
  const pieces = [""];
  for (const sentence of line.split(/(?<=[.!?。！？])\s*/u)) {
    if (pieces.at(-1).length + sentence.length > MOST_CHARACTERS) pieces.push("");
    const parts = sentence.match(/.{1,4000}/gsu) ?? [];
    pieces[pieces.length - 1] += `${parts.shift() ?? ""} `;
    pieces.push(...parts);
  }
  return pieces.filter((piece) => piece.trim());
}

/** Whether a line has these letters as a word; in scripts without spaces, whether it has them at all. */
function mayHave(line, spelling) {
  if (!/^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}\s]+$/u.test(spelling)) return line.includes(spelling);
  const pattern = spelling
    .split(/\s+/)
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
    .join("\\s+");
  return new RegExp(`(?<![\\p{L}\\p{N}])${pattern}(?![\\p{L}\\p{N}])`, "u").test(line);
}

/** All words of some lines with all layers of each: text, line, place, the words of its sentence, layers. */
export async function readWords(lines, model) {
  const answer = await post("/layers", { model, texts: lines });
  const [numLayers, dim] = answer.shape;
  return answer.texts.map((each, line) => {
    const floats = readFloats(each.layers);
    const num = each.words.length;
    const vectorsOf = (i) =>
      Array.from({ length: numLayers }, (_, j) => floats.subarray((j * num + i) * dim, (j * num + i + 1) * dim));
    const sentenceOf = (i) => each.sentences.find(([begin, end]) => i >= begin && i < end);
    return each.words.map((text, i) => {
      const [begin, end] = sentenceOf(i);
      return {
        text,
        start: each.spans[i][0],
        stop: each.spans[i][1],
        line,
        place: i,
        words: each.words.slice(begin, end),
        inSentence: i - begin,
        layers: vectorsOf(i),
      };
    });
  });
}

/** The words that a text repeats, the most frequent first, without those that every text has. */
export function findFrequent(content, most) {
  const counts = new Map();
  const start = content.slice(0, 200000);
  const segmenter = "Segmenter" in Intl ? new Intl.Segmenter(undefined, { granularity: "word" }) : null;
  const words = segmenter ? [...segmenter.segment(start)].map((each) => each.segment) : (start.match(/\p{L}+/gu) ?? []);
  for (const each of words) {
    const word = each.toLowerCase();
    const isLatin = /^\p{Script=Latin}+$/u.test(word);
    if (!/^\p{L}+$/u.test(word) || (isLatin && word.length < 4) || COMMON.has(word)) continue;
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts]
    .filter(([, count]) => count > 2)
    .sort((a, b) => b[1] - a[1])
    .slice(0, most)
    .map(([word]) => word);
}

const COMMON = new Set(
  `about after again also been before being both came come could does down each even every first from gave
give have having here himself into itself just like made make many might more most much must never only other over said same
shall should some such than that their them then there these they this those through under until upon very were what when
where which while will with without would your`.split(/\s+/),
);
