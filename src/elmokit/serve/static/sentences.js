// Words as a line to read: joined as people write them, and cut to a length.

const CLOSES = /^[,.;:!?)\]}»”’%。，、；：！？）》」』…]|^['’](s|t|d|m|re|ve|ll)$|^n['’]t$/u;
const OPENS = /[([{«“‘（《「『]$/u;
const NO_SPACES = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}，。、；：！？]/u;

/** Words in a row, without a space before a comma or between characters of scripts that write none. */
export function joinWords(words) {
  return words.reduce((line, word) => line + (line && needsSpace(line, word) ? " " : "") + word, "");
}

/** Whether a space belongs between what ends a line and the next word. */
export function needsSpace(line, word) {
  if (CLOSES.test(word) || OPENS.test(line)) return false;
  return !(NO_SPACES.test(line.slice(-1)) && NO_SPACES.test([...word][0] ?? ""));
}

/** At most so many letters. */
export function shorten(content, length) {
  const letters = [...content];
  if (letters.length <= length) return content;
  const kept = letters.slice(0, Math.max(1, length - 1)).join("");
  return `${kept.replace(/(?<=\S.*)\s\S*$/, "").trimEnd()}…`; // no half of a word, if there are several
}

/** What stands before some words, the words, and what stands after, together at most about `length` letters. */
export function cutAround(words, begin, end, length = Infinity) {
  const middle = joinWords(words.slice(begin, end));
  const left = [...joinWords(words.slice(0, begin))];
  const right = [...joinWords(words.slice(end))];
  const room = Math.max(10, length - middle.length);
  const forLeft = Math.max(room / 2, room - right.length);
  const forRight = Math.max(room / 2, room - left.length);
  const before =
    left.length > forLeft
      ? `…${left
          .slice(left.length - Math.floor(forLeft))
          .join("")
          .replace(/^\S*\s+(?=\S)/, "")}`
      : left.join("");
  const after = shorten(right.join(""), Math.floor(forRight));
  const glueLeft = before && needsSpace(before, words[begin]) ? " " : "";
  const glueRight = after && needsSpace(middle, words[end]) ? " " : "";
  return [before + glueLeft, middle, glueRight + after];
}
