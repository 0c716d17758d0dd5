"""``fb-fairseq <command> [options]``."""

import sys

from fb_fairseq.commands import main

if __name__ == "__main__":
    sys.exit(main())
