"""The exit codes after which a gang starts again by itself: restart.rules and restart.limit, in Kubernetes' form."""

from dataclasses import dataclass

from closeknit.api.trainingjob import Restart, RestartAction, TrainingJobSpec


@dataclass(frozen=True, slots=True)
class ResetCodes:
    """The exit codes of a trainer after which the gang starts again."""

    are_named: bool
    """Whether `codes` are these, or all others but 0."""
    codes: tuple[int, ...]

    def has(self, code: int) -> bool:
        """Whether this one is among them."""
        return code != 0 and (code in self.codes) is self.are_named


def reset_codes(spec: TrainingJobSpec) -> ResetCodes:
    """Those of a job. What no rule has is charged, so that without a limit it ends the job."""
    restart = spec.restart or Restart()
    ruled = {code: restart.action_after(code) for rule in restart.rules for code in rule.exit_codes}
    if restart.limit > 0:
        return ResetCodes(False, tuple(sorted(code for code, does in ruled.items() if does is RestartAction.FAIL)))
    free = RestartAction.RESTART_FREE
    return ResetCodes(True, tuple(sorted(code for code, does in ruled.items() if does is free)))


def asks_for_restarts(spec: TrainingJobSpec) -> bool:
    """Whether the job may be started again after an error of its own."""
    codes = reset_codes(spec)
    return bool(codes.codes) or not codes.are_named
