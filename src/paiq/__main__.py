"""`python -m paiq` is the command `paiq`."""

import sys

from paiq.cli.main import main

sys.exit(main())
