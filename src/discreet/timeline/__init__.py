"""Rows over time at one lifetime budget: `Timeline`.

`timeline` has the class, `row` what one row releases and what a model is made of, `public_state`
the hash chain of rows, and `entries` the secret table of who entered when.
"""

from discreet.timeline.timeline import Timeline

__all__ = ["Timeline"]
