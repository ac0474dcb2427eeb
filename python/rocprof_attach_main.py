"""python3 -m rocprof_attach: the same as rocprof-attach."""

import sys

from . import command_line

sys.exit(command_line())
