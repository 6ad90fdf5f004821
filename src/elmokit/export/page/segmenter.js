// Text → sentences → words: the rules of elmokit's text/segmenters.py, whose patterns and lists are in segmenter.json.
// Names follow that file, where the rules are explained. Places are counted in characters, as the explorer counts them.

export class RuleSegmenter {
  constructor(rules) {
    const join = (name) =>
      rules.patterns[name].map((part) => (typeof part === "number" ? rules.sets[part] : part)).join("");
    this.plain = new RegExp(join("plain"), "gu");
    this.withAddresses = new RegExp(join("with_addresses"), "gu");
    this.clitic = new RegExp(join("clitic"), "u");
    const classes = rules.classes;
    this.space = new RegExp(`${classes.space}+`, "u");
    this.lineEnd = new RegExp(`\\r\\n|${classes.lineEnd}`, "gu");
    this.is = Object.fromEntries(
      Object.entries(classes).map(([name, set]) => {
        const pattern = new RegExp(`^${set}+$`, "u");
        return [name, (text) => pattern.test(text)];
      }),
    );
    this.lists = Object.fromEntries(Object.entries(rules.lists).map(([name, words]) => [name, new Set(words)]));
    this.abbreviations = new Map(Object.entries(rules.abbreviations));
  }

  /** The sentences of a text, each a list of { text, start, stop }. */
  sentences(text) {
    const found = [];
    let [begin, origin] = [0, 0];
    const read = (line) => {
      found.push(...this.readLine(line, origin, true));
      origin += count(line);
    };
    for (const end of text.matchAll(this.lineEnd)) {
      read(text.slice(begin, end.index + end[0].length));
      begin = end.index + end[0].length;
    }
    read(text.slice(begin));
    return found;
  }

  /** The words of one sentence: nothing ends it but the end of the text. */
  words(text) {
    return this.readLine(text, 0, false)[0] ?? [];
  }

  readLine(line, origin, splits) {
    const found = [];
    let sentence = [];
    const forms = line.split(this.space).filter(Boolean);
    const chunks = forms.map((form) => this.readChunk(form));
    let [at, place] = [0, origin]; // in code units of the line, and in characters of the text
    forms.forEach((form, number) => {
      const next = line.indexOf(form, at);
      place += count(line.slice(at, next));
      at = next + form.length;
      const chunk = chunks[number];
      const following = chunks[number + 1] ?? null;
      const pieces = choosePieces(chunk, following);
      const placed = pieces.map((piece) => {
        const start = place;
        place += count(piece);
        return { text: piece, start, stop: place };
      });
      if (chunk.ending === "none") {
        sentence.push(...placed);
        return;
      }
      const stops = [...chunk.breaks, placed.length];
      stops.forEach((stop, i) => {
        sentence.push(...placed.slice(i ? stops[i - 1] : 0, stop));
        const ends = stop < placed.length || this.endsSentence(chunk, following, forms[number + 2], sentence);
        if (ends && splits) {
          found.push(sentence);
          sentence = [];
        }
      });
    });
    if (sentence.length) found.push(sentence);
    return found;
  }

  /** Whether a sentence ends after this chunk, which is the last of `sentence` so far. */
  endsSentence(chunk, following, after, sentence) {
    if (following === null) return true;
    const { ending } = chunk;
    const { beginning } = following;
    if (ending === "title" || beginning === "closer" || (beginning === "lower" && ending !== "hard")) return false;
    if (ending === "short" || ending === "initial") return following.starter;
    if (ending === "numbered") return beginning !== "digit";
    if (ending === "counter") return sentence.length > 2;
    if (ending === "quoted")
      return after === undefined || !this.lists.REPORTING_VERBS.has(after.replace(/^[,.;:!?]+|[,.;:!?]+$/g, ""));
    if (ending === "dots") return following.pieces[0] !== "I";
    if (ending === "carries") return sentence.slice(-4, -1).some((word) => this.lists.STOPS.has(word.text));
    return true;
  }

  /** Everything that the rules say about one chunk, which is what stands between white space. */
  readChunk(form) {
    const [beginning, starter] = this.classifyBeginning(form);
    if (this.isRun(form)) return { pieces: [form], ending: "none", beginning, starter, breaks: [], loose: [form] };
    const { CLOSERS, HARD_STOPS, ADDRESS_SIGNS } = this.lists;
    const signs = [...form];
    let tokens;
    if (',.;:!?)"”'.includes(signs.at(-1)) && this.isRun(form.slice(0, -1)))
      tokens = [form.slice(0, -1), form.slice(-1)];
    else {
      const pattern = signs.some((sign) => ADDRESS_SIGNS.has(sign)) ? this.withAddresses : this.plain;
      tokens = [...form.matchAll(pattern)].map((match) => match[0]);
    }
    const joined = [];
    const kinds = [];
    for (const token of tokens) {
      const mayBe = token === "." && joined.length && kinds.at(-1) === "none";
      const kind = mayBe ? this.classifyAbbreviation(joined.at(-1)) : "none";
      if (kind === "none") {
        joined.push(token);
        kinds.push(kind);
      } else {
        joined[joined.length - 1] += ".";
        kinds[kinds.length - 1] = kind;
      }
    }
    const pieces = this.splitClitics(joined);
    const breaks = signs.some((sign) => HARD_STOPS.has(sign)) ? this.findInnerEnds(pieces) : [];
    let last = joined.length;
    while (last && CLOSERS.has(joined[last - 1])) last--;
    let ending = last ? kinds[last - 1] : "none";
    if (last && ending === "none") ending = this.classifyStop(joined.slice(0, last), joined.slice(last));
    if (ending === "none" && (beginning === "closer" || breaks.length)) ending = "carries";
    const loose = ending === "initial" || ending === "numbered" ? this.splitClitics(tokens) : pieces;
    return { pieces, ending, beginning, starter, breaks, loose };
  }

  isRun(form) {
    if (/^[\0-\x7f]*$/.test(form)) return /^[0-9A-Za-z]+$/.test(form);
    const isSpaced = this.is.alpha(form) && [...form].every((sign) => sign < "\u2000");
    return isSpaced || /^[0-9A-Za-z가-힣]+$/.test(form);
  }

  splitClitics(tokens) {
    return tokens.flatMap((token) => {
      const parts = [];
      while (parts.length < 3 && /['’]/.test(token)) {
        const found = this.clitic.exec(token);
        if (!found) break;
        parts.unshift(found[0]);
        token = token.slice(0, found.index);
      }
      return [token, ...parts];
    });
  }

  classifyAbbreviation(word) {
    const isUpper = word === word.toUpperCase() && word !== word.toLowerCase();
    if (count(word) === 1 && this.is.upper(word)) return "initial";
    const [first = "", ...rest] = word;
    const kind = this.abbreviations.get(isUpper ? first.toUpperCase() + rest.join("").toLowerCase() : word);
    if (kind !== undefined) return kind;
    const parts = word.split(".");
    return parts.length > 1 && parts.every((part) => this.is.alpha(part) && count(part) <= 2) ? "short" : "none";
  }

  classifyStop(tokens, closers) {
    const { HARD_STOPS, QUOTES, STOPS } = this.lists;
    const last = tokens.at(-1);
    const [sign] = last;
    if ("!?؟‼⁇⁈⁉".includes(sign)) return closers.some((each) => QUOTES.has(each)) ? "quoted" : "sure";
    if (HARD_STOPS.has(sign)) return "hard";
    if (sign === "…" || last.startsWith("..")) return "dots";
    if (STOPS.has(last)) return tokens.length === 2 && this.is.decimal(tokens[0]) ? "counter" : "sure";
    return "none";
  }

  /** The class of a chunk's first letter or digit, and whether its first word often begins a sentence. */
  classifyBeginning(form) {
    const { DASHES, OPENERS, ROMAN, STARTERS } = this.lists;
    const signs = [...form];
    if (signs[0] >= "가" && signs[0] <= "힣" && signs[0].length === 1) return ["upper", false];
    if (",;:)]}”»".includes(signs[0])) return ["closer", false];
    const letter = signs.findIndex((sign) => this.is.alnum(sign));
    if (letter < 0) {
      const isDash = signs.every((sign) => DASHES.has(sign));
      return [isDash ? "dash" : OPENERS.has(signs[0]) ? "opener" : "closer", false];
    }
    const begin = signs.slice(letter, letter + 64).join("");
    const [word] = begin
      .replace(/[,;:!?)\]”"’']+$/, "")
      .replaceAll("’", "'")
      .split("'");
    const [sign = ""] = word;
    if (this.is.digit(sign) || (count(word) > 1 && [...word].every((each) => ROMAN.has(each)))) return ["digit", false];
    return [this.is.lower(signs[letter]) ? "lower" : "upper", STARTERS.has(word)];
  }

  /** Where sentences end inside a chunk: after 。 and its like, with what closes them, unless と goes on quoting. */
  findInnerEnds(pieces) {
    const { CLOSERS, HARD_STOPS } = this.lists;
    const ends = [];
    let stopped = false;
    pieces.forEach((piece, number) => {
      const [sign] = piece;
      if (HARD_STOPS.has(sign)) stopped = true;
      else if (!CLOSERS.has(piece)) {
        const quoting = number > 0 && CLOSERS.has(pieces[number - 1]) && sign === "と";
        if (stopped && !quoting) ends.push(number);
        stopped = false;
      }
    });
    return ends;
  }
}

/** The words of a chunk, now that the next is known: `No. 5` but `No .`, `C. Dickens` but `vitamin C .` last. */
function choosePieces(chunk, following) {
  if (chunk.ending === "numbered" && following?.beginning !== "digit") return chunk.loose;
  if (chunk.ending === "initial" && (following === null || following.starter)) return chunk.loose;
  return chunk.pieces;
}

/** Characters of a text; a string counts some of them twice. */
function count(text) {
  let number = 0;
  for (const _ of text) number++;
  return number;
}
