"""Effective sample sizes as section 2.7 of Lau (2018) defines them."""

from __future__ import annotations

import numpy as np


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """Effective sample size of each parameter, from all chains together; chains that disagree make it small.

    Correlations ρ_t come from the variogram over the variance between and within chains, and are summed for
    t = 1, ..., T with T the first odd number for which ρ_{T+1} + ρ_{T+2} < 0. As in Stan the result is at most
    mn log10(mn): over few draws that swing from side to side the sum may fall to -½, where the formula has no value.

    Args:
        draws: shape (chains m, draws n, parameters).

    Returns:
        Shape (parameters,).
    """
    m, n, num_parameters = draws.shape
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1) if m > 1 else 0.0
    rho = 1 - _variogram(draws) / (2 * ((n - 1) / n * within + between))
    pairs = rho[2 : n - n % 2].reshape(-1, 2, num_parameters).sum(axis=1)
    before_first_negative = np.logical_and.accumulate(pairs >= 0, axis=0)
    inefficiency = 1 + 2 * (rho[1] + (pairs * before_first_negative).sum(axis=0))
    return m * n / np.maximum(inefficiency, 1 / np.log10(m * n))


def counting_lag_zero(sizes: np.ndarray | float, num_draws: int) -> np.ndarray | float:
    """What the sizes become where ρ_0 = 1 is summed too, which takes independent draws for a third of their number."""
    return num_draws / (num_draws / sizes + 2)


def _variogram(draws: np.ndarray) -> np.ndarray:
    """Mean of (x_i - x_{i-t})² over chains and pairs of draws, for lags t = 0, ..., n - 1; shape (n, parameters)."""
    n = draws.shape[1]
    x = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(x, 2 * n, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=1)[:, :n]
    squares = x**2
    up_to = squares.cumsum(axis=1)[:, ::-1]  # over i < n - t
    from_on = squares[:, ::-1].cumsum(axis=1)[:, ::-1]  # over i >= t
    num_pairs = np.arange(n, 0, -1)[:, None]
    return np.mean((up_to + from_on - 2 * products) / num_pairs, axis=0)
