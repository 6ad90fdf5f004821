// Words → ids: the schemes of elmokit's text/characters.py, which explains the numbers. Id 0 is no word; symbol s is s + 1.

const BYTES = { beginSentence: 257, endSentence: 258, beginWord: 259, endWord: 260, padding: 261 };

/** How a model numbers its words; `config` is elmo.json. */
export function makeScheme(config, alphabet, vocabulary) {
  const { characters, words } = config.elmo;
  const parts = [];
  if (words) parts.push(makeWordScheme(words, vocabulary, config.swaps_markers));
  if (characters) {
    const isBytes = characters.scheme === "bytes";
    parts.push(
      isBytes
        ? makeByteScheme(characters.max_length)
        : makeUnicodeScheme(alphabet, characters.max_length, config.swaps_markers),
    );
  }
  const join = (name) => parts.flatMap((part) => part[name]);
  return {
    firstCharacter: words ? 1 : 0,
    widest: characters ? Math.max(...characters.filters.map(([width]) => width)) : 0,
    begin: join("begin"),
    end: join("end"),
    wordIds: (word) => parts.flatMap((part) => part.wordIds(word)),
  };
}

function makeByteScheme(columns) {
  const encoder = new TextEncoder();
  const mark = (symbols) => markWord(symbols, columns, BYTES.beginWord, BYTES.endWord, BYTES.padding);
  const begin = mark([BYTES.beginSentence]);
  const end = mark([BYTES.endSentence]);
  const wordIds = (word) => {
    if (word === "<S>") return begin;
    if (word === "</S>") return end;
    return mark(Array.from(encoder.encode(word.replace(/\p{Surrogate}/gu, "")), (byte) => byte + 1));
  };
  return { begin, end, wordIds };
}

function makeUnicodeScheme(alphabet, columns, swaps) {
  const ids = new Map(alphabet.map((symbol, number) => [symbol, number + 1]));
  const marks = swaps ? ["<eow>", "<bow>"] : ["<bow>", "<eow>"];
  const mark = (symbols) => markWord(symbols, columns, ids.get(marks[0]), ids.get(marks[1]), ids.get("<pad>"));
  const begin = mark([ids.get("<bos>")]);
  const end = mark([ids.get("<eos>")]);
  const wordIds = (word) => {
    const letters = [...word].slice(0, columns - 2);
    const spelled = letters.join("");
    if (spelled === "<bos>") return begin;
    if (spelled === "<eos>") return end;
    return mark(letters.map((letter) => ids.get(letter) ?? ids.get("<oov>")));
  };
  return { begin, end, wordIds };
}

function makeWordScheme({ num_words: numWords, max_length: longest }, vocabulary, swaps) {
  if (!vocabulary) {
    const parse = (word) => {
      const row = /^[0-9]{1,15}$/.test(word) ? Number(word) : -1;
      if (row < 0 || row >= numWords)
        throw new Error(`a word of this model is a number from 0 to ${numWords - 1}: ${word}`);
      return [row + 1];
    };
    return { begin: [1], end: [2], wordIds: parse };
  }
  const ids = new Map(vocabulary.map((word, row) => [word, row + 1]));
  const names = [
    ["<S>", "</S>", "<UNK>"],
    ["<bos>", "<eos>", "<oov>"],
  ];
  if (swaps) names.reverse();
  const [begin, end, unknown] = names.find(([first, last]) => ids.has(first) && ids.has(last));
  const wordIds = (word) => {
    const id = ids.get(longest === null ? word : [...word].slice(0, longest).join("")) ?? ids.get(unknown);
    if (id === undefined) throw new Error(`this model does not know ${word}, and has no <UNK>`);
    return [id];
  };
  return { begin: [ids.get(begin)], end: [ids.get(end)], wordIds };
}

/** A marker, the symbols of a word as far as they fit, a marker, padding. */
function markWord(symbols, columns, begin, end, padding) {
  const kept = symbols.slice(0, columns - 2);
  return [begin, ...kept, end, ...Array(columns - 2 - kept.length).fill(padding)];
}
