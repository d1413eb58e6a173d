"""A plate where the user wrote none: round the one observed site whose log-probability has an entry for each row.

The plate is only declared, by a frame on the site's message. Whether the entries depend on one row each is not known
from their shape; a model is divided by such a plate only with a proof (:mod:`pyro_split.splitting.row_independence`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyro.poutine.indep_messenger import CondIndepStackFrame
from pyro.poutine.messenger import Messenger

from pyro_split.potential.model_rows import log_prob_shape


class InImpliedPlate:
    """A model whose observed site lies in a plate of its own, named after the site.

    Args:
        model: the user's model.
        site: name of the site.
    """

    def __init__(self, model: Callable[..., Any], site: str):
        self.model, self.site, self.plate = model, site, f"rows of {site}"
        self.__wrapped__ = model  # gives this object the model's signature, which names the arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        with _Frame(self.site, self.plate):
            return self.model(*args, **kwargs)


class _Frame(Messenger):
    """Adds to the site's message a frame of the plate, of the length of the site's log-probability."""

    def __init__(self, site: str, plate: str):
        super().__init__()
        self.site, self.plate = site, plate

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] == self.site and msg["is_observed"]:
            [size] = log_prob_shape(msg["fn"], msg["value"])
            frame = CondIndepStackFrame(self.plate, -1, size, 0, size)
            msg["cond_indep_stack"] = (*msg["cond_indep_stack"], frame)
