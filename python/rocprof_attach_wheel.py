"""The module rocprof_attach of the installation that the package midair carries."""

import importlib.util
import os
import sys

_FILE = os.path.join("midair", "_prefix", "lib", "python3", "site-packages", "rocprof_attach", "__init__.py")
_SITE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SPEC = importlib.util.spec_from_file_location(__name__, os.path.join(_SITE, _FILE))
# Its file tells it where its library is.
sys.modules[__name__] = _MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
