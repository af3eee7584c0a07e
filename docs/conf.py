"""Configuration of the documentation site: `make docs` builds it with Sphinx into site/.

Pages are Markdown (MyST), notebooks are shown with their stored outputs, and the API reference
comes from docstrings. Nothing is loaded from elsewhere: the site works from a disk.
"""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from discreet.version import __version__  # noqa: E402

project = "discreet"
copyright = "The discreet authors"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["notebooks/execute.py", "pictures"]
nb_execution_mode = "off"  # `make notebooks` runs them, and the tests do
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say types and units
autodoc_mock_imports = ["lenskit"]  # brings torch, and is in no extra of ours
napoleon_google_docstring = False
default_role = "code"  # docstrings mark names with single backticks

html_theme = "furo"
html_title = "discreet"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

# MathJax as one local file, from the package that carries it
_carrier = importlib.util.find_spec("sphinx-mathjax-offline")
if _carrier is None or _carrier.origin is None:
    raise RuntimeError("sphinx-mathjax-offline is not installed: run make install")
html_static_path.append(str(Path(_carrier.origin).parent / "static" / "mathjax" / "tex-svg.js"))
mathjax_path = "tex-svg.js"
