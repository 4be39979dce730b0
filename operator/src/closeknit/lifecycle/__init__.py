"""Who gets GPUs, and what follows for each job: `schedule` gives a verdict on every job, `follow` the Plan that brings
one job's objects to its verdict. Pure and level-triggered."""
