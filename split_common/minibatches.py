"""Rules for kernels that read a few rows an iteration."""

from __future__ import annotations

from collections.abc import Sequence

PERMUTE_BELOW = 4  # ratio of all rows to those that are drawn, below which all rows are permuted
LEAST_SUBSETS = 2  # with one subset the check of a split cannot tell whether rows are independent
REPLACE_FROM = 20  # the same ratio, at and above which rows are drawn with replacement


def sizes_of_parts(num_rows: int) -> set[int]:
    """Numbers of rows at which independence is proved for kernels that read single rows, whatever M is."""
    return {-(-num_rows // LEAST_SUBSETS)}


def draws_by_permutation(num_rows: int, size: int) -> bool:
    """Whether so large a part of the rows is drawn that permuting all of them is cheaper."""
    return size * PERMUTE_BELOW > num_rows


def draws_with_replacement(num_rows: int, size: int) -> bool:
    """Whether so few rows are drawn that drawing without replacement would gain nothing, and cost a sort."""
    return size * REPLACE_FROM <= num_rows


def share_of_shard(size: int, num_shards: int) -> int:
    """Number of rows that each shard draws for ``size`` rows in all: equal parts, rounded up.

    Example:
        >>> share_of_shard(100, 8)
        13
    """
    return -(-size // num_shards)


def check_no_local_latents(kernel: str, local: Sequence[str]) -> None:
    """Raise when latent sites inside the data plate have an entry for each row."""
    if local:
        raise ValueError(
            f"{kernel} needs a model whose latent sites all lie outside the data plate (a few rows say nothing of the "
            f"others' latents), got {sorted(local)} inside it; marginalise them, or use SymmetricSplitHMC or SplitNUTS"
        )
