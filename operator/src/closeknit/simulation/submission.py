"""A job of a trace."""

from dataclasses import dataclass

from closeknit.api.trainingjob import TrainingJobSpec


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """A job that comes at its time, and runs so long once it has begun."""

    number: int
    """Its line in the trace; unique."""
    at_s: float
    """Seconds since the trace begins."""
    run_s: float
    spec: TrainingJobSpec
    part: float = 1.0
    """How much of a GPU each of its ranks takes; less than one only of jobs of one GPU."""

    @property
    def gpus(self) -> float:
        """What it takes in all."""
        return self.spec.gpus * self.part
