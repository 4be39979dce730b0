"""What is to be done next for every job: step(cluster, now) -> plans. Pure and level-triggered."""
