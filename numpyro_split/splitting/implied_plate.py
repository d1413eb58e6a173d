"""A plate where the user wrote none: round the one observed site whose log-probability has an entry for each row.

The plate is only declared, by a frame on the site's message. Whether the entries depend on one row each is not known
from their shape; a model is divided by such a plate only with a proof
(:mod:`numpyro_split.splitting.row_independence`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpyro.primitives import CondIndepStackFrame, Messenger

from numpyro_split.potential.model_rows import log_prob_of


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
        super().__init__(None)
        self.site, self.plate = site, plate

    def process_message(self, msg: dict[str, Any]) -> None:
        """Add the frame if the message is the site's."""
        if msg["type"] == "sample" and msg["name"] == self.site and msg["is_observed"]:
            shape = log_prob_of(msg).shape
            msg["cond_indep_stack"] = [*msg["cond_indep_stack"], CondIndepStackFrame(self.plate, -1, shape[0])]
