"""Sums over users that own their sensitivity, all of them in one registry that the tests walk.

`sums` has the registry, what a sum is, and the table of sensitivities; `contributions` the sums
over what users contribute; `integer_sums` how whole numbers are added exactly. Statistics of single
algorithms stand beside their steps, in `discreet.privacy.users`.
"""

__all__ = ["base", "bounds", "contributions", "integer_sums", "pairs", "sums", "user_values"]
