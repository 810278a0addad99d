"""`python -m pagewalk` is `pagewalk`."""

import sys

from pagewalk.cli import main

if __name__ == "__main__":
    sys.exit(main())
