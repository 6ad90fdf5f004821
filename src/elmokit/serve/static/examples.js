// Texts of our own writing to begin with, by the language of a model (the first two letters of its name).

const BANKS = `She sat by the river bank and watched the boats.
The muddy bank of the river was covered with reeds.
They walked along the grassy bank of the stream.
The bank lent him money to buy a house.
She works for a bank in the city.
The bank raised its interest rates.`;

const MANY_BANKS = `We tied the boat to a willow on the bank and slept in the shade.
The river rose in the night and broke over its bank.
On the far bank of the river a heron stood in the shallow water.
Children were fishing from the bank of the canal.
The path follows the left bank of the river down to the mill.
They pulled the canoe up the bank and made a fire.
Wild mint grew along the bank of the stream.
The soldiers crossed the bridge and camped on the opposite bank.
Otters had dug their holes in the steep bank above the water.
He slipped on the wet bank and fell into the river.
The village lies on the northern bank of the lake.
The bank refused to lend the company any more money.
The bank failed and its customers lost their savings.
He was the president of a bank in New York.
The bank lost millions when its loans were not paid back.
Every morning the clerk carried the money to the bank.
The bank bought shares of two railway companies.
Her savings were kept in a small bank in the country.
The bank charges interest on every loan.
He left the army and became a director of the bank.
The bank was founded in 1820 and had branches in ten cities.
The bank pays interest on all deposits.
The central bank raised its interest rates.
A new bank opened its office next to the town hall.`;

const CELLS_THEN = `The monk returned to his cell and prayed until the morning.
A narrow bed and a table were all that stood in the cell.
The prisoner was led back to his cell by two guards.
No light came into the cell but through a small window.
Each nun had a cell of her own on the upper floor.
He spent nine years in a dark cell under the tower.
The jailer locked the door of the cell and went away.
From his cell he could hear the bells of the town.
She scratched the days into the wall of her cell.
The hermit left his cell only to fetch water.`;

const CELLS_NOW = `Every cell of the body carries the same genes.
The virus enters the cell and copies itself.
A nerve cell sends signals to many others.
When the cell divides, each half receives a copy of the DNA.
The drug stops the growth of the cancer cell.
Proteins are made inside the cell.
The wall of a plant cell is stiff.
A red blood cell lives for about four months.
Sugar gives the cell its energy.
The prisoner was alone in his cell.`;

const HORSES = `그는 말을 타고 전쟁터로 갔다.
기병들은 말을 타고 싸웠다.
왕은 하얀 말을 타고 있었다.`;

const SPEECH = `어머니의 말을 듣고 울었다.
그녀는 그의 말을 믿지 않았다.
나는 선생님의 말을 이해하지 못했다.`;

const MANY_MAL = `${HORSES}
그들은 말을 타고 산을 넘었다.
농부는 말을 길렀다.
장군은 말을 타고 성으로 돌아왔다.
${SPEECH}
그는 아무 말을 하지 않았다.
그는 거짓말을 했다는 말을 들었다.
아이는 아직 말을 하지 못한다.`;

const HUA = `公园里开满了花。
这朵花很漂亮。
春天到了，花都开了。
他花了很多钱。
我花了三天时间完成工作。
这次旅行花了五百元。`;

/** Sentences to compare: a word and one sentence per line. */
export const COMPARE = {
  en: {
    bank: { word: "bank", text: BANKS },
    play: {
      word: "play",
      text: `The children play in the garden.
They play football after school.
We play chess in the evening.
The play opened in a small theatre.
She wrote a play about her mother.
The play was a great success in London.`,
    },
  },
  ko: { 말: { word: "말을", text: `${HORSES}\n${SPEECH}` } },
  zh: { 花: { word: "花", text: HUA } },
};

/** Texts with many uses of a word; where there is a second text `b`, its uses have changed. */
export const USAGES = {
  en: {
    bank: { word: "bank", a: MANY_BANKS },
    "cell, then and now": { word: "cell", a: CELLS_THEN, b: CELLS_NOW },
  },
  ko: { 말: { word: "말을", a: MANY_MAL } },
  zh: { 花: { word: "花", a: HUA } },
};

/** Texts in which to look for neighbours: the line and the place of a word in it, both from 0. */
export const NEIGHBOURS = {
  en: {
    bank: { text: MANY_BANKS, at: "11:1" },
    cell: { text: `${CELLS_THEN}\n${CELLS_NOW}`, at: "11:4" },
  },
  ko: { 말: { text: MANY_MAL, at: "0:1" } },
  zh: { 花: { text: HUA, at: "3:1" } },
};

/** Pieces of sentences for the language model, which says what could stand around them; `at` is a word to replace. */
export const PREDICTIONS = {
  en: {
    river: { text: "walked along the bank of the river to the old", at: 3 },
    prisoner: { text: "The prisoner was led back to his cell by two", at: 7 },
    elephant: { text: "The king gave his daughter a purple elephant.", at: 7 },
  },
  ko: { 말: { text: "그는 말을 타고 산을", at: 1 } },
  zh: { 打: { text: "他每天下午打篮球", at: 5 } },
};

/** A sentence and the place of the word that is followed through the model. */
export const INSIDE = {
  en: {
    bank: { text: "She sat by the river bank and watched the boats.", at: 5 },
    unbelievable: { text: "It was an unbelievable story.", at: 3 },
  },
  ko: { 말: { text: "그는 말을 타고 전쟁터로 갔다.", at: 1 } },
  zh: { 打: { text: "他每天下午打篮球。", at: 5 } },
};

/** The examples for a model. */
export function choose(examples, model) {
  return examples[model.name.slice(0, 2)] ?? examples.en;
}
