#!/usr/bin/env bash
# WikiText-103 with adaptive input and softmax:
#   bash examples/language_modeling/wikitext103/run.sh wikitext-103-v1.zip    # the setting of v3 Table 9, for GPUs
#   bash examples/language_modeling/wikitext103/run.sh --small WIKITEXT2      # small models, for a CPU
# WIKITEXT2: a folder with train.txt, valid.txt and test.txt (or .txt.gz, or wiki.train.tokens, …).
# Models (--models), and the papers' test perplexity:
#   feedback_transformer_lm_wikitext103_small (the default)       44M parameters: 22.4 (v1 Table 4)
#   feedback_transformer_lm_wikitext103_large                     139M, span 512
#   feedback_transformer_lm_wikitext103_large_span2048            139M, adaptive span to 2048: 18.2 (v1 Table 4)
#   feedback_transformer_lm_wikitext103_large_shared_span2048     126M, shared projections: 18.3 (v3 Table 3)
#   relative_transformer_lm_wikitext103_small, …_large, …_large_span2048    baselines: 25.2 (v1), 19.9 (v3 Table 3)
#   all_attention_lm_wikitext103, …_3clusters                     133M: 20.6 (all-attention Table 3)
#   initialised        the default, initialised with the parameters of relative_transformer_lm_wikitext103_small
# --print: print the commands without running them. Options and steps: ../README.md.
. "$(dirname -- "${BASH_SOURCE[0]}")/../../recipe.sh" wikitext103 "$@"
