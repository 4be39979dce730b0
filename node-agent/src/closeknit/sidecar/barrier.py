"""The init container: it ends when every Pod of the gang has left the old run, and leaves what is known of that as its
termination message, where the operator reads it.

That of node rank 0 is the meeting point meanwhile, and stays until the others have heard that they may go. Who has not,
hears it of the watch that follows.
"""

import json
import time

from closeknit.sidecar.gang.member_state import Act
from closeknit.sidecar.gang.participant import Participant
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import Settings

MESSAGE_PATH = "/dev/termination-log"
# Longer than any reset takes, and than a death and the operator's wait for another node: a minute and ten. A Pod that
# then fails is made again.
GIVES_UP_S = 900.0
STAYS_S = 1.0  # for the others to hear
_LOST = "a Pod of the gang is over, so that the others cannot begin again"


class Barrier(Participant):
    """The barrier of one Pod."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        message_path: str = MESSAGE_PATH,
        gives_up_s: float = GIVES_UP_S,
    ) -> None:
        super().__init__(settings, folder)
        self._message_path = message_path
        self._gives_up_s = gives_up_s
        self._until = time.monotonic() + gives_up_s
        self._leaves_at: float | None = None
        self._then = 0

    def run(self) -> int:
        """Waits. Gives 0 to go on, 1 where no next run can begin here."""
        self._ended = self.folder.end(self.member.run)
        self._hung = self.folder.hang()
        self.folder.keep_hang(None)
        if self.member.barrier() is Act.LET_GO:  # of a new gang
            self._let_go()
            return 0
        if self.folder.is_lost:
            self._tell({"run": None, "why": _LOST})
            return 1
        return super().run()

    def look(self) -> None:
        """Sees whether it is time to end."""
        now = time.monotonic()
        if self.is_told_to_end:
            self.member.leaves()
            self.code = 1
        elif self._leaves_at is not None:
            has_left = self.hub is None or self.hub.all_run
            if has_left or now >= self._leaves_at:
                self.code = self._then
        elif now >= self._until:
            self._give_up(f"the gang has not come together in {self._gives_up_s:.0f} s")

    def act(self, act: Act) -> None:
        """Lets the Pod go, or gives it up."""
        if act is Act.LET_GO:
            self._let_go()
            self._leave(0)
            self.speak()
            if self.hub is None:
                self.code = 0
        elif act is Act.GIVE_UP:
            self._give_up(_LOST)

    def _let_go(self) -> None:
        run = self.member.run
        if self.member.size is not None:
            self.folder.keep_variables(self.settings.variables(*self.member.size))
        self.folder.begin(run)
        said: dict[str, object] = {"run": run}
        if self._ended is not None:
            said["ended"] = self._ended._asdict()
        if self._hung is not None and self.settings.restarts_hung:
            said["hang"] = self._hung
        self._tell(said)

    def _give_up(self, why: str) -> None:
        self._tell({"run": None, "why": why})
        self._leave(1)

    def _tell(self, said: dict[str, object]) -> None:
        with open(self._message_path, "w") as message:
            message.write(json.dumps(said, separators=(",", ":")))

    def _leave(self, code: int) -> None:
        if self._leaves_at is None:
            self._then, self._leaves_at = code, time.monotonic() + STAYS_S
