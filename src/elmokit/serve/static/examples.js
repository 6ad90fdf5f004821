// Texts of our own writing to begin with, by the language of a model (the first two letters of its name).

const ENGLISH = {
  bank: {
    word: "bank",
    text: `She sat by the river bank and watched the boats.
The muddy bank of the river was covered with reeds.
They walked along the grassy bank of the stream.
The bank lent him money to buy a house.
She works for a bank in the city.
The bank raised its interest rates.`,
  },
  play: {
    word: "play",
    text: `The children play in the garden.
They play football after school.
We play chess in the evening.
The play opened in a small theatre.
She wrote a play about her mother.
The play was a great success in London.`,
  },
};

export const COMPARE = {
  en: ENGLISH,
  ko: {
    배: {
      word: "배",
      text: `그는 배를 타고 섬으로 갔다.
큰 배가 항구에 들어왔다.
어부들은 배를 타고 바다로 나갔다.
나는 시장에서 배와 사과를 샀다.
가을에는 배와 감이 맛있다.
그는 사과보다 배를 더 좋아한다.`,
    },
  },
  zh: {
    打: {
      word: "打",
      text: `他每天下午打篮球。
孩子们在操场上打球。
她给妈妈打电话。
请你到了以后打电话给我。`,
    },
  },
};
