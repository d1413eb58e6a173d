"""Settings of what adapts in warm-up: step size, mass matrix, centring and drifts, from the arguments of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from split_common.centering import CenterSettings
from split_common.checks import check_flag, check_positive_float, check_probability
from split_common.gradient_metric import check_metric, uses_gradients
from split_common.harmonic import check_drift
from split_common.low_rank_metric import check_low_rank
from split_common.mass import check_inverse_mass_matrix, check_mass_blocks, check_mass_matrix_values, dense_blocks


class AdaptationSettings(NamedTuple):
    """Settings of adaptation in warm-up, in the words of the hosts' HMC.

    Attributes:
        step_size: step size, or where its adaptation starts.
        inverse_mass_matrix: the inverse mass matrix to start from; None for the identity.
        adapt_step_size: whether the step size adapts.
        adapt_mass_matrix: whether the mass matrix adapts.
        dense: whether the mass matrix is dense, or its dense blocks, each a tuple of site names.
        dense_name: the host's name of that argument, for messages.
        target_accept_prob: acceptance probability that the step size is adapted to.
        find_heuristic_step_size: whether a workable step size is searched for.
        regularize_mass_matrix: whether an estimated mass matrix is shrunk; Pyro always shrinks it.
        metric: None for the host's, or "auto" for one from draws and gradients.
        center: whether and how splitting is centred.
        drift: None for straight drifts, or "auto".
    """

    step_size: float
    inverse_mass_matrix: Any
    adapt_step_size: bool
    adapt_mass_matrix: bool
    dense: bool | list[tuple[str, ...]]
    dense_name: str
    target_accept_prob: float
    find_heuristic_step_size: bool
    regularize_mass_matrix: bool
    metric: str | None
    center: CenterSettings
    drift: str | None

    @classmethod
    def checked(
        cls,
        dense: Any,
        dense_name: str,
        host_array: type,
        *,
        step_size: float,
        inverse_mass_matrix: Any,
        adapt_step_size: bool,
        adapt_mass_matrix: bool,
        target_accept_prob: float,
        find_heuristic_step_size: bool,
        regularize_mass_matrix: bool = True,
        metric: str | None = None,
        center: Any = None,
        center_order: int | None = None,
        drift: str | None = None,
    ) -> AdaptationSettings:
        """The settings that a kernel's arguments ask for.

        Raises:
            TypeError: for a flag that is no bool.
            ValueError: for an argument out of range.
        """
        checked_metric = check_metric(metric, dense, dense_name, adapt_mass_matrix)
        return cls(
            step_size=check_positive_float("step_size", step_size),
            inverse_mass_matrix=check_mass_matrix_values(inverse_mass_matrix, host_array),
            adapt_step_size=check_flag("adapt_step_size", adapt_step_size),
            adapt_mass_matrix=check_flag("adapt_mass_matrix", adapt_mass_matrix),
            dense=check_mass_blocks(dense_name, dense),
            dense_name=dense_name,
            target_accept_prob=check_probability("target_accept_prob", target_accept_prob),
            find_heuristic_step_size=check_flag("find_heuristic_step_size", find_heuristic_step_size),
            regularize_mass_matrix=check_flag("regularize_mass_matrix", regularize_mass_matrix),
            metric=checked_metric,
            center=CenterSettings.checked(center, center_order),
            drift=check_drift(drift, checked_metric),
        )

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless the mass matrix that was given fits sites of these sizes."""
        check_mass_blocks(self.dense_name, self.dense, sizes)
        check_low_rank(self.inverse_mass_matrix, self.metric, self.adapt_mass_matrix, sizes)
        dense = self.dense
        if uses_gradients(self.metric, sum(sizes.values())):
            dense = dense_blocks(self.inverse_mass_matrix)  # whatever form the first metric has, the next is dense
        check_inverse_mass_matrix(self.inverse_mass_matrix, sizes, dense)
