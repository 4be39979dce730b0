"""Never for nothing: on any cluster, each planned move makes room for the gang that it was for, and that starts."""

from random import Random

from closeknit.api.trainingjob_status import State
from scenarios.stories import nodes
from scenarios.story import Story, dra_node, plugin_node
from unit.scheduling.defragment.test_planned_moves import HOUR, MINUTE, WHOLE_NODE, job
from unit.scheduling.resizing.test_elastic_jobs import begin, finish

SEEDS = range(4)


def life(random: Random) -> Story:
    """Nodes full of small jobs, some of which allow moves; then one or two of each node end, and gangs come that need
    whole nodes."""
    kind = random.choice((plugin_node, dra_node))
    count = random.choice((2, 3))
    story = Story(*(each for number in range(1, count + 1) for each in kind(f"gpu-{number}")))
    for number in range(count):
        for part, gpus in enumerate(random.choice(((4, 4), (4, 2, 2), (2, 6)))):
            allowed = random.choice(("Planned", "Planned", "Planned", "Never"))
            story.add(job(f"s{number}-{part}", gpus, defragment=allowed))
            begin(story)
        story.pass_time(random.choice((0, MINUTE, HOUR)))
    on: dict[str, list[str]] = {}
    for key in sorted(story.cluster.jobs):  # the jobs' own order changes with each process
        on.setdefault(nodes(story, key.name)[0], []).append(key.name)
    for there in on.values():
        for name in random.sample(there, k=random.randrange(1, len(there))):
            finish(story, name)
    begin(story)
    for number in range(random.choice((1, 2))):
        story.add(job(f"{random.choice('az')}-gang-{number}", 8, **WHOLE_NODE))
    return story


def moves(story: Story) -> set[str]:
    """Jobs that have moved."""
    jobs = story.cluster.jobs.items()
    return {key.name for key, job in jobs if any(each.reason == "Moved" for each in job.status.attempts)}


def waiting(story: Story) -> set[str]:
    return {key.name for key, job in story.cluster.jobs.items() if job.status.state == State.QUEUED}


def test_a_gang_starts_after_each_move() -> None:
    moved = 0
    for seed in SEEDS:
        random = Random(seed)  # noqa: S311 - a test
        story = life(random)
        begin(story)
        for _ in range(4):
            story.pass_time(random.choice((5 * MINUTE, 20 * MINUTE, 2 * HOUR)))
            gone, gangs = moves(story), waiting(story)
            begin(story)
            new = moves(story) - gone
            moved += len(new)
            started = gangs - waiting(story)
            assert not new or started, (seed, new, story.written[-12:])
            running = {name for name in (*new, *started) if story.status(name).state == State.RUNNING}
            assert running == {*new, *started}, seed
    assert moved >= 2  # a property of moves that never come would hold
