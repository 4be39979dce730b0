"""The sidecar beside a trainer: it tells the gang when that fails, and ends with RESET_CODE when the gang begins again.

It ends with 0 when the trainer is over, so that its Pod is.
"""

import json
import time
from contextlib import suppress

from closeknit.sidecar.gang.member_state import Act
from closeknit.sidecar.gang.participant import Participant
from closeknit.sidecar.gang.probe import Probe
from closeknit.sidecar.gang.protocol import Phase
from closeknit.sidecar.gang.run_folder import RunFolder
from closeknit.sidecar.gang.settings import RESET_CODE, TOLD_CODE, Settings
from closeknit.sidecar.hang import BEHIND_FOR_S
from closeknit.sidecar.progress_signs import ProgressSigns, Touches, stall, touched, words

MESSAGE_PATH = "/dev/termination-log"
_KILLED_CODE = 128 + 9


class Watch(Participant):
    """The watch of one Pod, which was let go before it began."""

    def __init__(self, settings: Settings, folder: RunFolder) -> None:
        super().__init__(settings, folder)
        is_heard = settings.hears_ras and settings.is_meeting_point
        self._signs = ProgressSigns(settings.behind_s or BEHIND_FOR_S) if is_heard else None
        self._touches = Touches(folder.progress)
        self._was_alive = False  # the trainer's wrapper
        self._probe: Probe | None = None
        is_leaving = folder.was_asked_to_leave(self.member.run)
        self._leaves_by: float | None = time.monotonic() + settings.grace_s if is_leaving else None
        """Until when a trainer may take its time that was told to end by choice."""

    def run(self) -> int:
        """See Participant.run."""
        if self._signs is not None:
            self._signs.listen()
        if self.settings.probe_port is not None:
            with suppress(OSError):  # something else has the port: then this Pod tells nothing of the others
                self._probe = Probe(self.settings.probe_port, self.selector, lambda: self.hears_whole)
        return super().run()

    def look(self) -> None:
        """Sees whether the trainer has ended, or the Pod is to end."""
        if self._probe is not None:
            self._probe.tidy()
        if self.member.phase is Phase.RUNNING and self._leaves_by is None:
            self._see_trainer()
        if self.member.phase is Phase.OVER:
            self.code = 0
        elif self.is_told_to_end:
            self.member.leaves()
            self.code = 0
        elif self._leaves_by is not None:
            if self._has_left(self._leaves_by):
                self.code = RESET_CODE
        elif self.member.phase is Phase.RUNNING:
            self._heed()

    def act(self, act: Act) -> None:
        """Has the Pod's containers start again, or keeps that they cannot."""
        if act is Act.RESET and self._leaves_by is None:
            self.code = RESET_CODE
        elif act is Act.LEAVE and self._leaves_by is None:
            self.folder.ask_to_leave(self.member.run)
            self._leaves_by = time.monotonic() + self.settings.grace_s
        elif act is Act.GIVE_UP:
            self.folder.lose()

    def _has_left(self, until: float) -> bool:
        """Whether nothing is left to wait for of a trainer that was told to end by choice."""
        run = self.member.run
        return self.folder.end(run) is not None or not self.folder.is_alive(run) or time.monotonic() >= until

    def _see_trainer(self) -> None:
        run = self.member.run
        end = self.folder.end(run)
        if end is None:
            # Killed from outside, with its wrapper: for want of memory, say. One that is there is told to end later
            # than we are: after its preStop hook, or by chance.
            folder = self.folder
            is_alive = folder.is_alive(run)
            is_killed = folder.is_wrapped(run) and not is_alive and folder.end(run) is None
            if self.is_told_to_end and is_killed and not folder.was_told(run):
                self.member.trainer_ended(is_for_good=False)
            elif is_killed and self._was_alive and self.settings.is_final(_KILLED_CODE):
                self.member.trainer_ended(is_for_good=True)  # then no kubelet ends this container
            self._was_alive = self._was_alive or is_alive
        elif self.settings.is_final(end.code):
            self.member.trainer_ended(is_for_good=True)
        elif not end.was_told:
            self.member.trainer_ended(is_for_good=False)

    def _heed(self) -> None:
        """Sees whether the gang hangs, or no longer does."""
        settings, folder, signs = self.settings, self.folder, self._signs
        found = None if signs is None else signs.found
        stalled = None
        if settings.behind_s is not None:
            last_s = None if signs is None else signs.last_progress_s
            stalled = stall(self._touches, settings.behind_s, folder.began(), last_s)
        told, news = folder.hang(), found or stalled
        if news is not None and told is None:
            self._tell(words(news, self._position, settings.index))
        elif news is None and told is not None and ("stalled" in told or (signs is not None and signs.is_moving)):
            self._tell(None)
        elif self._is_first_step() or self._is_first_of_nccl():
            self._say(told)

    def _is_first_step(self) -> bool:
        """Whether the trainer of node rank 0 has first touched its file in a run that follows another."""
        settings, folder, run = self.settings, self.folder, self.member.run
        is_asked = settings.is_meeting_point and settings.behind_s is not None
        if not (is_asked and (settings.tells_first_step or run)) or folder.first_step(run) is not None:
            return False
        at = touched(folder.progress, folder.began())
        if at is not None:
            folder.keep_first_step(run, at)
        return at is not None

    def _is_first_of_nccl(self) -> bool:
        """Whether the version of NCCL is known, the operator waits for it or no hang can be seen with it, and these
        Pods have not told it."""
        signs = self._signs
        if signs is None or signs.nccl_version is None or (signs.hears_counts and not self.settings.tells_nccl):
            return False
        return self.folder.nccl_version() is None

    def _position(self, address: str) -> int | None:
        """Of the Pod with this address in the gang; None where it is not known."""
        if self.settings.size == 1:
            return self.settings.index
        return None if self.server is None else self.server.addresses().get(address)

    def _tell(self, told: dict[str, object] | None) -> None:
        """Has the gang start again, or leaves words for the operator: these end the sidecar alone, which is started
        again at once."""
        self.folder.keep_hang(told)
        if told is not None and self.settings.restarts_hung:
            if self.hub is not None and not self.hub.is_lost:
                self.hub.call()
            else:
                self.member.trainer_ended(is_for_good=False)
                self.code = RESET_CODE  # by no end of its trainer, which is there
            return
        self._say(told)

    def _say(self, hang: dict[str, object] | None) -> None:
        """Leaves what is known of this run, and ends for the kubelet to pass it on."""
        run = self.member.run
        at = self.folder.first_step(run)
        if self._signs is not None and self._signs.nccl_version is not None:
            self.folder.keep_nccl_version(self._signs.nccl_version)
        version = self.folder.nccl_version()
        said = {
            "run": run,
            "hang": hang,
            **({} if at is None else {"firstStep": at}),
            **({} if version is None else {"nccl": version}),
        }
        with suppress(OSError), open(MESSAGE_PATH, "w") as message:
            message.write(json.dumps(said, separators=(",", ":")))
        self.code = TOLD_CODE
