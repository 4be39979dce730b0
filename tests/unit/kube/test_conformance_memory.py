"""The in-memory Api does what the conformance suite asks; tests/cluster asks the same of a real API server."""

import pytest

from faults import virtual_time
from faults.conformance import CASES, WIDGET_KIND, Case
from faults.kinds import STOCK_KINDS
from faults.memory_api import MemoryApi
from faults.store import Store


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_api_in_memory(case: Case) -> None:
    async def main() -> None:
        await case(MemoryApi(Store([*STOCK_KINDS, WIDGET_KIND])), "ml")

    virtual_time.run(main())
