"""``python -m fb_fairseq benchmark table5`` (command.py): Table 5 of the Feedback Transformer (arXiv 2002.09402, v3
§4.3.4). task.py says what a task is: models that train and infer with a batch of any size; language_modelling.py and
translation.py need fairseq, reinforcement_learning.py does not. settings.py holds the sizes and the papers' figures,
memory.py finds the largest batch that fits, report.py prints."""
