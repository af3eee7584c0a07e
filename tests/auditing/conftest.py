"""Planted faults are looked for where the other tests keep them."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / folder) for folder in ("privacy", "testing")]
