"""The sidecar beside a trainer: it tells the gang when that fails, and ends with RESET_CODE when the gang begins again.

It ends with 0 when the trainer is over, so that its Pod is.
"""

from closeknit.sidecar.gang.member_state import Act
from closeknit.sidecar.gang.participant import Participant
from closeknit.sidecar.gang.protocol import Phase
from closeknit.sidecar.gang.settings import RESET_CODE


class Watch(Participant):
    """The watch of one Pod, which was let go before it began."""

    def look(self) -> None:
        """Sees whether the trainer has ended, or the Pod is to end."""
        if self.member.phase is Phase.RUNNING:
            self._see_trainer()
        if self.member.phase is Phase.OVER:
            self.code = 0
        elif self.is_told_to_end:
            self.member.leaves()
            self.code = 0

    def act(self, act: Act) -> None:
        """Has the Pod's containers start again."""
        if act is Act.RESET:
            self.code = RESET_CODE

    def _see_trainer(self) -> None:
        run = self.member.run
        end = self.folder.end(run)
        if end is None:
            # Killed from outside, with its wrapper: for want of memory, say.
            if self.is_told_to_end and self.folder.is_wrapped(run) and not self.folder.was_told(run):
                self.member.trainer_ended(is_for_good=False)
        elif self.settings.is_final(end.code):
            self.member.trainer_ended(is_for_good=True)
        elif not end.was_told:
            self.member.trainer_ended(is_for_good=False)
