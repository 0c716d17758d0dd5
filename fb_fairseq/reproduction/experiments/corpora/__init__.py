"""Bringing the corpora of the papers into the form that their models are trained on."""
