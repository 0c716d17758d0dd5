"""``python -m fb_fairseq compare``: results of recipes beside the papers' tables."""
