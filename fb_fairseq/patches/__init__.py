"""What is patched in fairseq. Importing this folder applies all patches, once."""

from fb_fairseq.patches.fairseq_patches import mend

mend()
