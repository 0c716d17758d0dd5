"""Programs that prepare the data of some experiments.

clean_wikipedia.py    the letters of text8
characters.py         a text's characters as words
read_csv.py           articles and summaries of CNN/DailyMail
standard_library.py   the quickstart's text
"""
