"""What two models say of the same twenty sentences: likely next words, likely words before, substitutes.

    python benchmarks/side_by_side.py en-small en-original > table.md

One row per sentence and model, the five likeliest words each: to be read by eye. Sentences are of our own writing.
"""

import sys

from elmokit import LanguageModel

SENTENCES = [  # a sentence, the word to be replaced in it, and how many words are shown to the forward model
    ("She sat by the river bank and watched the boats .", "bank", 5),
    ("The bank lent him the money for a new car .", "bank", 5),
    ("He scored twice in the last ten minutes of the match .", "match", 6),
    ("She struck a match and lit the candle .", "match", 2),
    ("The doctor told her to take the medicine twice a day .", "medicine", 6),
    ("The president said on Monday that he would not sign the bill .", "bill", 5),
    ("In 1912 the family moved from Vienna to New York .", "family", 4),
    ("The software crashes when I open a large file .", "file", 6),
    ("Could you book a table for two at seven ?", "table", 4),
    ("The cat slept on the warm roof all afternoon .", "roof", 5),
    ("Water boils at a lower temperature in the mountains .", "temperature", 5),
    ("My grandmother used to bake bread every Sunday morning .", "bread", 5),
    ("The virus spreads through the air when people cough .", "virus", 3),
    ("He plays the guitar in a small band .", "guitar", 3),
    ("The judge sentenced the thief to three years in prison .", "thief", 4),
    ("The train to London leaves from platform nine .", "train", 4),
    ("The museum is closed on Mondays and public holidays .", "museum", 4),
    ("Scientists have discovered a new planet near a distant star .", "star", 5),
    ("I do n't think she will come to the party tonight .", "party", 5),
    ("The king and his army crossed the border in spring .", "army", 4),
]


def main(names):
    models = {name: LanguageModel.from_pretrained(name) for name in names}
    print("| sentence, the replaced word in bold | model | next at ‖ | before the last three words | instead |")
    print("|---|---|---|---|---|")
    for sentence, word, shown in SENTENCES:
        words = sentence.split()
        shown_words = [f"**{each}**" if each == word else each for each in words]
        marked = " ".join([*shown_words[:shown], "‖", *shown_words[shown:]])
        for name, model in models.items():
            after = model.predict(words[:shown], top=5)
            before = model.predict(words[-3:], top=5, direction="backward")
            instead = model.substitutes(words, word, top=5)
            columns = (" ".join(found for found, _ in each) for each in (after, before, instead))
            print(f"| {marked} | {name} | " + " | ".join(columns) + " |")
            marked = ""


if __name__ == "__main__":
    main(sys.argv[1:])
