"""python3 -m rocpd: the same as rocpd."""

import sys

from . import main

sys.exit(main())
