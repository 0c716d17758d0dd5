"""Programs that prepare the data of some experiments: extract.py (.zip), clean_wikipedia.py (text8), characters.py,
read_csv.py (CNN/DailyMail), standard_library.py (the quickstart's text)."""
