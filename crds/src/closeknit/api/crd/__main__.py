"""`python -m closeknit.api.crd` writes the generated files, with --check it only compares them.

The one module of closeknit.api that touches the disk; it works in a checkout, where the models and the files are.
"""

import argparse
import sys
from pathlib import Path

from closeknit.api.crd.generated_files import COMMAND, generated_files

ROOT = Path(__file__).parents[5]  # crds/src/closeknit/api/crd/__main__.py


def stale_files(root: Path) -> list[str]:
    """What to say about each file that differs from what the models give, missing and left-over ones included."""
    files = generated_files()
    said = []
    for path, text in files.items():
        if not (root / path).is_file():
            said.append(f"{path} is missing")
        elif (root / path).read_text() != text:
            said.append(f"{path} differs from the models")
    for folder in ("crds", "helm/closeknit/files/crds"):
        found = (path.relative_to(root).as_posix() for path in (root / folder).glob("*.yaml"))
        said += [f"{path} belongs to no kind; delete it" for path in sorted(found) if path not in files]
    return said


def write_files(root: Path) -> None:
    """Writes every generated file, in folders made for it."""
    for path, text in generated_files().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def main() -> int:
    """Exit status: 1 when --check found a stale file."""
    parser = argparse.ArgumentParser(prog="python -m closeknit.api.crd", description="Writes what the models generate.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    if parser.parse_args().check:
        said = stale_files(ROOT)
        if said:
            print("\n".join([*said, f"run: {COMMAND}"]), file=sys.stderr)
        return 1 if said else 0
    write_files(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
