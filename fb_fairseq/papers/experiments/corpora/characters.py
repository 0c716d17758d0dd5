"""Write text as characters, ``characters WORDS CHARACTERS``: each is a token, and ``_`` separates words."""

import sys

if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as words, open(sys.argv[2], "w", encoding="utf-8") as characters:
        for line in words:
            characters.write(" ".join("_".join(line.split())) + "\n")
