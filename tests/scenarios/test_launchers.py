"""Jobs whose first node launches the others: what they have beside their Pods, and when they are over."""

from typing import Any

from scenarios.manifests import training_job
from scenarios.story import Story, plugin_node


def story(**spec: Any) -> Story:
    fields = {"gpus": 16, "framework": "MPI", **spec}
    return Story(*plugin_node("gpu-1"), *plugin_node("gpu-2"), training_job(spec=fields))


def kinds(told: Story) -> list[str]:
    return sorted(key[0] for key in told.objects if key[0] in ("Service", "ConfigMap", "Secret", "Pod"))


def test_files_and_keys_are_there_before_the_first_pod() -> None:
    told = story()
    told.settle()
    made = [words.split(" ")[1] for words in told.written if words.startswith("create")]
    assert made == ["Service", "ConfigMap", "Secret", "Pod", "Pod"]


def test_the_job_is_over_when_its_launcher_is() -> None:
    told = story()
    told.settle()
    told.run_all()
    told.settle()
    told.change_pod("train-a1-worker-00000", phase="Succeeded")
    told.settle()
    assert told.status().state == "Succeeded"
    assert told.status().attempts[-1].reason == "Succeeded"
    assert told.names("Pod") == ["train-a1-worker-00000"]  # the other would serve for ever


def test_where_all_ranks_are_equal_the_first_is_not_the_last() -> None:
    told = story(framework="PyTorch")
    told.settle()
    told.run_all()
    told.settle()
    told.change_pod("train-a1-worker-00000", phase="Succeeded")
    told.settle()
    assert told.status().state == "Running"


def test_another_attempt_has_files_of_its_own_and_the_same_keys() -> None:
    told = story()
    told.settle()
    files, keys = told.names("ConfigMap"), told.names("Secret")
    told.run_all()
    told.settle()
    told.remove_pod("train-a1-worker-00001")
    for _ in range(3):
        told.pass_time(60)
        told.settle()
    assert told.status().attempt == 2
    assert told.names("Secret") == keys
    assert len(told.names("ConfigMap")) == 1 and told.names("ConfigMap") != files
    assert kinds(told) == ["ConfigMap", "Pod", "Pod", "Secret", "Service"]
