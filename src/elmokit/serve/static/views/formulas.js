// The formulas of the view Inside, in MathML. Peters et al. 2018, sections 3.1 to 3.3; Kim et al. 2016 for filters and highways.

const wrap = (inner, label) => `<math display="block" aria-label="${label}">${inner}</math>`;
const i = (name) => `<mi>${name}</mi>`;
const o = (sign) => `<mo>${sign}</mo>`;
const n = (number) => `<mn>${number}</mn>`;
const bold = (name) => `<mi mathvariant="bold">${name}</mi>`;
const row = (...parts) => `<mrow>${parts.join("")}</mrow>`;
const sub = (base, index) => `<msub>${base}${index}</msub>`;
const over = (base, sign) => `<mover accent="true">${base}${o(sign)}</mover>`;
const right = (index) => sub(over(bold("h"), "→"), index);
const left = (index) => sub(over(bold("h"), "←"), index);
const kj = row(i("k"), o(","), i("j"));

/** The formula of a step; `activation` is the function that follows the filters. */
export function writeFormula(step, activation) {
  return FORMULAS[step].replace("ACTIVATION", activation === "tanh" ? "tanh" : "relu");
}

const FORMULAS = {
  bytes: wrap(
    row(bold("C"), o("="), o("["), sub(bold("c"), n(1)), o(","), o("…"), o(","), sub(bold("c"), i("n")), o("]")),
    "C is the list of vectors c of the bytes",
  ),
  filters: wrap(
    row(
      sub(i("f"), i("m")),
      o("="),
      i("ACTIVATION"),
      o("("),
      sub(i("max"), i("p")),
      o("("),
      row(
        sub(bold("w"), i("m")),
        o("·"),
        sub(bold("C"), row(i("p"), o(":"), i("p"), o("+"), i("w"))),
        o("+"),
        sub(i("b"), i("m")),
      ),
      o(")"),
      o(")"),
    ),
    "each filter keeps its largest answer over all places",
  ),
  highway: wrap(
    row(
      bold("y"),
      o("="),
      bold("g"),
      o("⊙"),
      i("relu"),
      o("("),
      bold("W"),
      bold("f"),
      o("+"),
      bold("b"),
      o(")"),
      o("+"),
      o("("),
      n(1),
      o("−"),
      bold("g"),
      o(")"),
      o("⊙"),
      bold("f"),
    ),
    "a gate mixes what is changed and what is carried",
  ),
  directions: wrap(
    row(sub(bold("h"), kj), o("="), o("["), right(kj), o(";"), left(kj), o("]")),
    "a layer is the forward and the backward half",
  ),
  mix: wrap(
    row(sub(bold("ELMo"), i("k")), o("="), i("γ"), sub(o("∑"), i("j")), sub(i("s"), i("j")), sub(bold("h"), kj)),
    "the ELMo vector is gamma times the sum of all layers by their weights",
  ),
};
