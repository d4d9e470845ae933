"""Puts the build tools and the plugin on the path; neither is a package of this repository."""

import sys
from pathlib import Path

IMAGE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(IMAGE / "build"), str(IMAGE / "plugin")]
