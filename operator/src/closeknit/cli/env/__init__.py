"""`closeknit env`: what is set in a job's trainers, and why."""
