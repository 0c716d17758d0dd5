"""``python -m fb_fairseq <command>``; installed, also ``fb-fairseq <command>``."""

import sys

from fb_fairseq.commands import main

if __name__ == "__main__":
    sys.exit(main())
