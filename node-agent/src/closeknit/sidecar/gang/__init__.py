"""How the Pods of one gang begin a run together: what a member and the meeting point decide, and how they talk.

Invariant: no run begins while anything of an earlier one may be left; a lost connection ends nothing.
"""
