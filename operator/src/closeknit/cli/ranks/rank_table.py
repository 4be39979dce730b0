"""What `closeknit ranks` prints for people: a line for each Pod, or for each rank."""

from itertools import groupby

from closeknit.cli.answers.job_answers import RankLine, RankList
from closeknit.cli.output.page import Ink, Inked, Page

_INKS = {"Running": Ink.GOOD, "Completed": Ink.GOOD, "Pending": Ink.CARE, "Terminating": Ink.CARE}


def draw(found: RankList, page: Page, *, is_wide: bool) -> None:
    """The table, and what is not well with it."""
    if is_wide:
        axes = [axis for axis in found.items[0].coordinates if any(each.coordinates[axis] for each in found.items)]
        rows: list[list[Inked | str]] = [
            [
                str(each.rank),
                each.node,
                str(each.gpu),
                _status(each.pod_status),
                *(str(each.coordinates[axis]) for axis in axes),
                each.uuid or "-",
            ]
            for each in found.items
        ]
        page.columns(("RANK", "NODE", "GPU", "POD", *(axis.upper() for axis in axes), "UUID"), rows)
    else:
        shares = [list(ranks) for _, ranks in groupby(found.items, key=lambda each: each.node_rank)]
        page.columns(
            ("RANKS", "NODE", "GPUS", "POD", "STATUS"),
            [
                (_ranks(ranks), ranks[0].node, ",".join(str(each.gpu) for each in ranks), ranks[0].pod,
                 _status(ranks[0].pod_status))
                for ranks in shares
            ],
        )  # fmt: skip
    if found.spares:
        page.say(f"spare: {', '.join(found.spares)}")
    if found.gpus_verified is False:
        page.say(Inked("some of its Pods got other GPUs than these", Ink.BAD), ": closeknit explain")


def _ranks(ranks: list[RankLine]) -> str:
    return str(ranks[0].rank) if len(ranks) == 1 else f"{ranks[0].rank}-{ranks[-1].rank}"


def _status(status: str | None) -> Inked:
    return Inked(status or "-", Ink.BAD if status and status not in _INKS else _INKS.get(status or ""))
