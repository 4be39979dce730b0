"""One Pod's part in its gang, without sockets and files.

It reports what is true of its Pod; what it is ordered depends on all reports, so that a lost line changes nothing: the
next report is answered the same. A lost connection means nothing by itself.
"""

from enum import Enum

from closeknit.sidecar.gang.protocol import Command, Order, Phase, Report, nonce


class Act(Enum):
    """What is to be done in the Pod."""

    LET_GO = "the barrier ends"
    RESET = "the containers start again"
    LEAVE = "the trainer is told to end, and then the containers start again"
    GIVE_UP = "the barrier fails, now or when it begins"


class MemberState:
    """Its state. `run`: the last run that the Pod was let go for, as its folder tells; None for a new Pod."""

    def __init__(self, index: int, run: int | None, replacement: int = 0) -> None:
        self.index = index
        self.replacement = replacement
        self.run = -1 if run is None else run
        self.phase = Phase.RUNNING
        """Also of one whose watch has begun and whose barrier is not there yet: something of the old run may be."""
        self.size: tuple[int, int] | None = None
        """How many nodes and ranks the run has that it was let go for; None: as it was told when it was made."""
        self._is_new = run is None
        self._nonce = ""

    @property
    def report(self) -> Report:
        """What to say now."""
        return Report(self.index, self.phase, self.run, self._nonce, self.replacement)

    def barrier(self) -> Act | None:
        """The Pod's barrier waits: its containers start, for the first time or again. A Pod of a new gang has no old
        run to leave, and waits for nobody; one that replaces another waits until the others have left theirs."""
        if self._is_new and not self.replacement:
            return self._let_go(0)
        if self.phase is not Phase.WAITING:
            self.phase, self._nonce = Phase.WAITING, nonce()
        return None

    def trainer_ended(self, *, is_for_good: bool) -> None:
        """The trainer has ended by itself."""
        if self.phase is Phase.RUNNING:
            self.phase = Phase.OVER if is_for_good else Phase.FAILED

    def leaves(self) -> None:
        """The sidecar is told to end, and does not know why."""
        if self.phase in (Phase.RUNNING, Phase.WAITING):
            self.phase, self._nonce = Phase.LEAVING, ""

    def obey(self, order: Order) -> Act | None:
        """What an order means here."""
        match order.command:
            case Command.GO if self.phase is Phase.WAITING and order.nonce == self._nonce and order.run > self.run:
                self.size = (order.nodes, order.ranks) if order.ranks else None
                return self._let_go(order.run)
            case Command.RESET if self.phase is Phase.WAITING:
                # Let go for a run that is over before this one has heard of it: that order must not count any more.
                self._nonce = nonce()
            case Command.RESET if self.phase is Phase.RUNNING and order.run >= self.run:
                return Act.RESET
            case Command.LEAVE if self.phase is Phase.RUNNING and order.run >= self.run:
                return Act.LEAVE
            case Command.GIVE_UP if self.phase in (Phase.WAITING, Phase.RUNNING, Phase.FAILED):
                return Act.GIVE_UP
        return None

    def _let_go(self, run: int) -> Act:
        self.run, self.phase, self._nonce, self._is_new = run, Phase.RUNNING, "", False
        return Act.LET_GO
