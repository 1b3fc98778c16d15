"""`python -m notewright.cli`, for where the script is not on the path."""

import sys

from notewright.cli.main import main

sys.exit(main())
