"""``python -m fb_fairseq benchmark table5`` (command.py): Table 5 of the Feedback Transformer (arXiv 2002.09402, v3
§4.3.4). task.py says what a task is, and has the sizes and the papers' figures; fairseq_tasks.py has language modelling
and translation, reinforcement_learning.py needs no fairseq."""
