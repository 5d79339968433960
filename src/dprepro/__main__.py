"""`python -m dprepro`: the same as the `dprepro` command."""

import sys

from dprepro.cli import main

sys.exit(main())
