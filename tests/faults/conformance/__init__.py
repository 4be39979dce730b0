"""What every `Api` must do: one suite, run in memory and on a real API server.

A case is a coroutine function of an Api and of a namespace of its own; `CASES` has them by names that read as
sentences. On a real server somebody has installed `WIDGET_CRD` before.
"""

from faults.conformance import reads as reads
from faults.conformance import writes as writes
from faults.conformance.cases import CASES, WIDGET_CRD, WIDGET_KIND, WIDGETS, Case, until

__all__ = ["CASES", "WIDGETS", "WIDGET_CRD", "WIDGET_KIND", "Case", "until"]
