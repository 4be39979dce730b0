"""What goes into placement and what comes out: Request, Placement, NoFit, and the budget of a search.

Invariant: values: equal content, equal value.
"""
