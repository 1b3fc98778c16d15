"""`python -m notewright.cli`, for where the script is not on the path."""

import sys

from notewright.cli import main

sys.exit(main())
