"""Products by what nvidia-smi calls them: what all GPUs of one have in common, and `topo -m` does not print."""

import re
from dataclasses import dataclass

from closeknit.api.nodetopology import MAX_LINKS_PER_GPU


@dataclass(frozen=True, slots=True)
class Product:
    """One product's NVLinks."""

    words: str
    """Part of the name that tells it."""
    links: int
    generation: int
    compute_capability: str
    link_bandwidth_gb_s: float | None = None
    """Per direction, as `nvidia-smi nvlink -s` prints it on real ones; None if never seen."""
    switches_above: int | None = None
    """More than so many of them in one machine are always joined by NVSwitches: boards without have no more; None where
    no such number is known."""
    bridge: int | None = None
    """Links of one of such a board's NVLink bridges; None where it has none: it is soldered."""
    is_wired_whole: bool = True
    """Whether every machine wires all links that it does not leave to bridges."""
    has_data_direct: bool = False
    """Whether NICs reach it through a second function, so that `topo -m` shows them where they are not."""

    def lacks(self, links: int) -> bool:
        """Whether a GPU of this product that shows so many links lacks some that its machine must have wired."""
        if not 0 < links < self.links:
            return False
        return bool(links % self.bridge) if self.bridge else self.is_wired_whole


# Links are those of the data sheets; the first that is in the name counts, so the special stand before the general.
_PRODUCTS = (
    Product("P100-SXM2", 4, 1, "6.0", is_wired_whole=False),
    Product("V100-SXM2", 6, 2, "7.0", 25.781, is_wired_whole=False),
    Product("V100-SXM3", 6, 2, "7.0", 25.781, switches_above=1),
    Product("RTX 8000", 2, 2, "7.5", 25.781, bridge=2),
    Product("Quadro RTX 6000", 2, 2, "7.5", 25.781, bridge=2),
    Product("TITAN RTX", 2, 2, "7.5", bridge=2),
    Product("2080 Ti", 2, 2, "7.5", bridge=2),
    Product("A800-SXM4", 8, 3, "8.0", switches_above=4),
    Product("A800", 8, 3, "8.0", bridge=4),
    Product("A100-SXM4", 12, 3, "8.0", 25.0, switches_above=4),
    Product("A100", 12, 3, "8.0", 25.0, bridge=4),
    Product("A30", 4, 3, "8.0", bridge=4),
    Product("A6000", 4, 3, "8.6", 14.062, bridge=4),
    Product("RTX 3090", 4, 3, "8.6", 14.062, bridge=4),
    Product("A40", 4, 3, "8.6", bridge=4),
    Product("A5000", 4, 3, "8.6", bridge=4),
    Product("H800", 8, 4, "9.0"),
    Product("H100 PCIe", 12, 4, "9.0", bridge=4),
    Product("H100 NVL", 12, 4, "9.0", bridge=4),
    Product("H100 80GB HBM3", 18, 4, "9.0", 26.562, switches_above=4),
    Product("H100", 18, 4, "9.0", 26.562),
    Product("H200 NVL", 18, 4, "9.0"),
    Product("H200", 18, 4, "9.0", 26.562, switches_above=4),
    Product("H20", 18, 4, "9.0", switches_above=4),
    Product("GH200", 18, 4, "9.0"),
    Product("B200", 18, 5, "10.0", switches_above=4),
    Product("GB200", 18, 5, "10.0", 53.125),
    Product("B300", 18, 5, "10.3", switches_above=4),
    Product("GB300", 18, 5, "10.3", has_data_direct=True),
)
MOST_LINKS = MAX_LINKS_PER_GPU  # of any product


def product_of(name: str | None) -> Product | None:
    """What is known of the product of that name: `NVIDIA H200`, `Tesla V100-SXM2-32GB`."""
    return next((product for product in _PRODUCTS if _is_in(product.words, name or "")), None)


def _is_in(words: str, name: str) -> bool:
    """Whole words, A40 is not in A4000; with dashes for its blanks as a label has them, too."""
    spelt = re.escape(words).replace(r"\ ", "[ -]")
    return re.search(rf"(?<![A-Za-z0-9]){spelt}(?![A-Za-z0-9])", name, re.IGNORECASE) is not None
