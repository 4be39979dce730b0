"""A ration of questions for each namespace in one decision, so that no queue slows down the others; and of gangs that
get GPUs in one decision, so that none takes long.

Jobs with equal requests share one answer, and a refusal stands while the cluster offers the same: a thousand jobs of
some dozens of shapes ask some dozens of questions when something comes free. A namespace of thousands of different jobs
would ask thousands. So each namespace has a ration of questions in one decision: one half for the head of its queue,
every time; the other for the rest in turn, from where the last decision stopped. A job without a question keeps its
status and loses only time; jobs of other namespaces lose nothing.
"""

from collections.abc import Mapping

from closeknit.scheduling.queue.entries import QueuePlace, is_kept_for

# In steps of a millisecond, what a search takes that finds no room on 5,000 nodes (0.8 ms measured): an eighth of a
# second for a namespace and decision in all, and more shapes than honest queues have.
HEAD_STEPS = 64
TURN_STEPS = 64
# What was never asked before is refused in words: 1 ms on 5,000 nodes measured. They walk all nodes where the holders
# of their GPUs are not counted for requests of this kind, 22 ms, and else those that have changed.
WORDED_PER_STEP = 4096
COUNTED_PER_STEP = 256
# Who selects nodes is asked on a tree of its own, made of all nodes whenever one has changed; requirements count
# as nodes do: 7 ms on 1,000 nodes with one of them, 16 ms with 64 measured.
SELECTED_PER_STEP = 4096
SELECTING = 24  # what making the tree costs, in requirements
# A gang that gets GPUs takes 2 to 6 ms (tests/bench/queue_depth.py on 5,000 nodes, a profile of 2026-11-27): its
# shares, its ranks, the views of its nodes and its Plan. Those behind it in the queue are asked in the next decision,
# which the loop makes at once.
MOST_BOOKED = 4


class QuestionBudget:
    """The rest of each namespace's ration on one walk over the queue."""

    def __init__(self, came_to: Mapping[str, QueuePlace], *, are_bounded: bool) -> None:
        self.is_short = False
        """Whether somebody was not asked."""
        self.is_cut = False
        """Whether somebody was left for the next decision, for as many have got GPUs as one gives."""
        self._began_after = came_to
        self._are_bounded = are_bounded
        self._head: dict[str, int] = {}
        self._turn: dict[str, int] = {}
        self._came_to: dict[str, QueuePlace] = {}
        self._asked: dict[str, QueuePlace] = {}
        """The last job of each namespace with a question."""
        self._has_more: set[str] = set()
        self._booked = 0

    @property
    def came_to(self) -> dict[str, QueuePlace]:
        """The last job with a question in turn, of each namespace whose queue goes on after it."""
        return {namespace: place for namespace, place in self._came_to.items() if namespace in self._has_more}

    @property
    def is_full(self) -> bool:
        """Whether as many have got GPUs on this walk as one decision gives."""
        return self._are_bounded and self._booked >= MOST_BOOKED

    def is_passed_over(self, place: QueuePlace) -> bool:
        """Whether a job before this one was left for the next decision, so that it takes nothing in this one, and no
        room comes to be kept for it. Who room is kept for already is asked all the same, and keeps its reservation."""
        return self.is_cut and not is_kept_for(place)

    def take(self, place: QueuePlace, steps: int) -> bool:
        """Whether the job of this place, behind all earlier questions, gets a question now; it costs so many steps. The
        first of a half always does, and so does who got one on this walk: its first answer is of no use without."""
        if not self._are_bounded:
            return True
        namespace = place[-2]
        if self._asked.get(namespace) == place:
            self.spend(place, steps)
            return True
        if self.is_passed_over(place):
            self.leave(place)
            return False
        head = self._head.get(namespace, 0)
        if head < HEAD_STEPS:
            self._head[namespace] = head + steps
            self._asked[namespace] = place
            return True
        began_after = self._began_after.get(namespace)
        if began_after is None or place > began_after:
            turn = self._turn.get(namespace, 0)
            if turn < TURN_STEPS:
                self._turn[namespace] = turn + steps
                self._came_to[namespace] = self._asked[namespace] = place
                return True
            self._has_more.add(namespace)
        self.is_short = True
        return False

    def leave(self, place: QueuePlace) -> None:
        """The job of this place is left for the next decision, in which its namespace's turn goes on where it was."""
        namespace = place[-2]
        began_after = self._began_after.get(namespace)
        if began_after is not None and place > began_after:
            self._came_to.setdefault(namespace, began_after)
        self._has_more.add(namespace)
        self.is_short = self.is_cut = True

    def book(self, *, is_written: bool = False) -> None:
        """Somebody gets GPUs. Once as many have some as one decision gives, the jobs behind them are left. One whose
        booking is being written already keeps nobody waiting, however long that takes."""
        self._booked += not is_written

    def spend(self, place: QueuePlace, steps: int) -> None:
        """The last question of its namespace, which the job of this place got, costs so many steps more."""
        namespace = place[-2]
        half = self._turn if self._came_to.get(namespace) == place else self._head
        half[namespace] = half.get(namespace, 0) + steps


def steps_of_words(nodes: int, counted: int) -> int:
    """Cost of a job's first refusal on so many nodes beside that of its question; so many were looked at for the
    holders of their GPUs."""
    return nodes // WORDED_PER_STEP + counted // COUNTED_PER_STEP


def steps_of_selection(nodes: int, requirements: int) -> int:
    """Cost of a search for the nodes that a job selects, among so many."""
    return nodes * (SELECTING + requirements) // SELECTED_PER_STEP
