"""A stand-in for Go, and a machine that has nothing else: for tests of what brings the control plane."""

from pathlib import Path

import pytest

FAKE_GO = """\
#!/bin/sh
[ "$1" = env ] && echo {version} && exit
[ "$1" = list ] && printf 'one\\ntwo\\n' && exit
while [ "$1" != -o ]; do shift; done
into=$2
shift 2
for package in "$@"; do
  echo built >> {folder}/builds
  echo '#!/bin/sh' > "$into$(basename "${{package%/v[0-9]}}")"
done
{then}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache, and neither Go nor uv."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.delenv("UV", raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path


def install_go(machine: Path, version: str = "go1.26.8", then: str = "true") -> None:
    go = machine / "bin" / "go"
    go.write_text(FAKE_GO.format(version=version, folder=machine, then=then))
    go.chmod(0o755)


def builds(machine: Path) -> int:
    """How many programs it has built."""
    return (machine / "builds").read_text().count("built")
