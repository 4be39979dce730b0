"""The meeting point of a gang, in node rank 0's Pod, without sockets and files.

A run begins when every member waits: then nothing of the old run is left anywhere. What a member is ordered follows
from the last report of each. A member that has gone silent keeps its last report: who waits goes on waiting until it is
let go, and one that runs may still run.

A gang may grow: the members that are added count once all of them wait. Until then the others train on.
"""

from collections.abc import Mapping

from closeknit.sidecar.gang.protocol import STAY, Command, Order, Phase, Report

QUICK_S = 60.0  # a run that ends sooner has hardly loaded its model
# Before each further run after quick ones: Kubernetes has no back-off for such a start. The operator's own verdict
# about a gang that makes no progress comes sooner than the last.
PAUSES_S = (0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
HEARD_FOR_S = 10.0  # after its last report; one comes every 2 s
NO_REPLACED: Mapping[int, int] = {}


class Hub:
    """Its state. `run` is the last run that began, -1 for none."""

    def __init__(
        self,
        size: int,
        run: int = -1,
        began: float | None = None,
        quick: int = 0,
        released: Mapping[int, str] | None = None,
        replaced: Mapping[int, int] = NO_REPLACED,
        begun: int = 0,
    ) -> None:
        self.size = max(size, begun)
        self.ranks = 0
        """Of all members; 0: as their Pods were told when they were made."""
        self.begun = begun or size
        """Members of the last run; those after them are added."""
        self.run = run
        self.began = began
        """When the last run began, by the clock that `release` is given."""
        self.quick = quick
        """Quick runs in a row."""
        self._reports: dict[int, Report] = {}
        self._heard: dict[int, float] = {}
        self.released = dict(released or {})
        """The words by which members were let go for the last run."""
        self.replaced = dict(replaced)
        """Members whose Pod has taken the place of others, with how many these were."""
        self._outlived: dict[int, float] = {}
        """When a replaced Pod was last heard whose trainer may still run."""
        self._calling: set[int] = set()
        self._waiting: set[int] = set()
        self._over: set[int] = set()
        self._ready_since: float | None = None
        self._is_hung = False
        self._is_by_choice = False
        """Whether nothing but the added members calls for a new run."""

    def resize(self, nodes: int, ranks: int) -> None:
        """Takes a size that is told after the Pods were made. It never becomes smaller in these Pods."""
        if nodes >= self.size:
            self.size, self.ranks = nodes, ranks

    def call(self) -> None:
        """Calls for a new run: the gang hangs in this one."""
        self._is_hung, self._is_by_choice = True, False

    def hear(self, report: Report, now: float) -> None:
        """Takes a member's report."""
        index = report.index
        if not 0 <= index < self.size:
            return
        if self.is_outlived(report):
            if report.phase in (Phase.RUNNING, Phase.FAILED):
                self._outlived[index] = now
            else:
                self._outlived.pop(index, None)
            return
        if report.replacement > self.replaced.get(index, 0):
            self._outlive(index)
            self.replaced[index] = report.replacement
        was_called = self.is_called
        self._reports[index] = report
        self._heard[index] = now
        self.run = max(self.run, report.run)
        waits = report.phase is Phase.WAITING and report.nonce != self.released.get(index)
        has_failed = report.phase is Phase.FAILED and report.run >= self.run
        for members, is_in in (
            (self._waiting, waits),
            (self._calling, (waits and index < self.begun) or has_failed),
            (self._over, report.phase is Phase.OVER),
        ):
            (members.add if is_in else members.discard)(index)
        if self.is_called and not was_called:
            self._is_by_choice = not self._calling and not self._is_hung

    def is_outlived(self, report: Report) -> bool:
        """Whether it is of a Pod that another one has replaced: it was on a node that was lost."""
        return report.replacement < self.replaced.get(report.index, 0)

    def order_to_outlived(self, report: Report) -> Order:
        """What such a Pod is to do: leave its run, and begin no other."""
        match report.phase:
            case Phase.RUNNING:
                return Order(Command.RESET, max(self.run, report.run))
            case Phase.WAITING | Phase.FAILED:
                return Order(Command.GIVE_UP)
        return STAY

    def _outlive(self, index: int) -> None:
        """Another Pod has taken this member's place."""
        before = self._reports.get(index)
        if before is not None and before.phase in (Phase.RUNNING, Phase.FAILED):
            self._outlived[index] = self._heard[index]
        self.released.pop(index, None)

    @property
    def is_called(self) -> bool:
        """Whether a new run is called for: a member has failed, or its containers have started again, or all members
        that are added wait for it."""
        return bool(self._calling) or self._is_hung or self._has_all_added

    @property
    def _has_all_added(self) -> bool:
        return self.begun < self.size and self._waiting.issuperset(range(self.begun, self.size))

    @property
    def _went_with(self) -> tuple[int, int]:
        """Nodes and ranks of the last run, which those hear too that hear late of it; all nodes have as many ranks."""
        return (self.begun, self.ranks * self.begun // self.size) if self.ranks else (0, 0)

    @property
    def is_lost(self) -> bool:
        """Whether no next run can begin in these Pods: one of them is over."""
        return bool(self._over)

    @property
    def all_run(self) -> bool:
        """Whether every member has said that it was let go for the last run."""
        reports = self._reports.values()
        return len(reports) == self.size and all(each.phase is not Phase.WAITING for each in reports)

    def order(self, index: int) -> Order:
        """What a member that was heard is to do."""
        report = self._reports[index]
        match report.phase:
            case Phase.WAITING if report.nonce == self.released.get(index):
                command = Command.RESET if self.is_called else Command.GO
                return Order(command, self.run, report.nonce, *self._went_with)
            case Phase.WAITING | Phase.RUNNING | Phase.FAILED if self.is_lost:
                return Order(Command.GIVE_UP)
            case Phase.RUNNING if self.is_called or report.run < self.run:
                is_asked = self._is_by_choice and report.run >= self.run
                return Order(Command.LEAVE if is_asked else Command.RESET, self.run)
        return STAY

    def release(self, now: float) -> bool:
        """Begins the next run where every member waits for it, and the pause before it is over. Who is asked for its
        order then is let go."""
        may_meet = any(0 <= now - heard < HEARD_FOR_S for heard in self._outlived.values())
        if len(self._waiting) < self.size or may_meet:
            self._ready_since = None
            return False
        if self._ready_since is None:
            self._ready_since = now
        quick = 0 if self.began is None or not 0 <= self._ready_since - self.began < QUICK_S else self.quick + 1
        if 0 <= now - self._ready_since < PAUSES_S[min(quick, len(PAUSES_S) - 1)]:
            return False
        self.run, self.began, self.quick, self.begun = self.run + 1, now, quick, self.size
        self.released = {index: report.nonce for index, report in self._reports.items()}
        self._waiting.clear()
        self._calling.clear()
        self._is_hung = self._is_by_choice = False
        self._ready_since = None
        return True

    def is_whole(self, now: float) -> bool:
        """Whether every member was heard lately, or has said that it is over."""
        return len(self._heard) == self.size and all(
            index in self._over or 0 <= now - heard < HEARD_FOR_S for index, heard in self._heard.items()
        )
