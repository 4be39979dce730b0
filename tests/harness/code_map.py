"""The code map of docs/architecture.md: what each folder of sources is and which invariant it keeps, from its __init__.

`python -m harness.code_map` writes it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
SOURCES = ("crds/src/closeknit", "operator/src/closeknit", "node-agent/src/closeknit")
BEGIN = "<!-- code map: written by `make generate` from each folder's __init__.py -->\n"
END = "<!-- end of code map -->\n"


def folders() -> Iterator[tuple[str, Path]]:
    """Each folder with modules by its path below closeknit, those of one program together, in order of names."""
    for source in SOURCES:
        for face in sorted((ROOT / source).rglob("__init__.py")):
            yield face.parent.relative_to(ROOT / source).as_posix(), face


def said(face: Path) -> tuple[str, str]:
    """What a folder is, in one sentence, and its invariant. Raises ValueError for a docstring that says less."""
    text = " ".join((ast.get_docstring(ast.parse(face.read_text())) or "").split())
    what, found, invariant = text.partition(" Invariant: ")
    if not (what and found and invariant):
        raise ValueError(f"{face.relative_to(ROOT)}: say what the folder is, then `Invariant: …`")
    return what, invariant


def lines() -> Iterator[str]:
    """The map in Markdown."""
    program = ""
    for source in SOURCES:
        for name, face in folders():
            if not face.is_relative_to(ROOT / source):
                continue
            if source != program:
                program = source
                yield f"### `{source.partition('/')[0]}/`\n"
            what, invariant = said(face)
            yield f"- **`{name}/`** {what}\n  *Invariant:* {invariant}"
        yield ""


def page(text: str) -> str:
    """The page with today's map."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{chr(10).join(lines())}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
