"""The blocks that a mass matrix is made of, as the hosts' ``dense_mass`` and ``full_mass`` ask for them."""

from __future__ import annotations

from collections.abc import Iterable


def mass_blocks(
    dense: bool | list[tuple[str, ...]], sites: Iterable[str], diagonal: Iterable[tuple[str, ...]] = ()
) -> dict[tuple[str, ...], bool]:
    """Divide sites into the blocks of a mass matrix.

    Args:
        dense: True for one dense block of all sites, False for none, or the dense blocks.
        sites: names of all sites.
        diagonal: blocks that are kept apart, diagonal unless they are among the dense ones.

    Returns:
        For each block, a tuple of site names, whether it is dense; sites in no other block, sorted, make the last.

    Example:
        >>> mass_blocks([("w", "b")], ["b", "c", "a", "w"])
        {('w', 'b'): True, ('a', 'c'): False}
    """
    sites = tuple(sorted(sites))
    asked = ([sites] if dense else []) if isinstance(dense, bool) else dense
    blocks = {tuple(block): True for block in asked}
    blocks |= {tuple(block): False for block in diagonal if tuple(block) not in blocks}
    rest = tuple(name for name in sites if not any(name in block for block in blocks))
    return {**blocks, rest: False} if rest else blocks
