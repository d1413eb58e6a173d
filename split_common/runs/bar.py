"""The progress bar of a run with a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from split_common.runs.plan import Plan


@contextmanager
def progress_bar(plan: Plan, is_shown: bool) -> Iterator[Callable[[Any, int], None]]:
    """A bar over the iterations of all chains, by tqdm, as both hosts use it.

    Args:
        plan: how long the run is.
        is_shown: whether to show the bar.

    Yields:
        A function to be called with chains that have moved, and by how much.
    """
    if not is_shown:
        yield lambda chains, num: None  # the text of a bar takes time to compute
        return
    from tqdm.auto import tqdm

    places: dict[tuple[int, ...], int] = {}
    with tqdm(total=plan.num_chains * plan.end) as bar:

        def show(chains: Any, num: int) -> None:
            numbers = tuple(chains.numbers)
            before = places.get(numbers, 0)
            places[numbers] = chains.position
            bar.set_description("warmup" if chains.position < plan.num_warmup else "sample", refresh=False)
            bar.set_postfix_str(chains.text, refresh=False)
            bar.update(len(numbers) * (chains.position - before))

        yield show
