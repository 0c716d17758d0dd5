"""Programs that prepare the data of some experiments: extract.py (.zip), characters.py, read_csv.py
(CNN/DailyMail), standard_library.py (the quickstart's text).
"""
