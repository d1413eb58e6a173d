"""Pyro's examples and tutorials as cases: what each model is run on, and what a split kernel must make of it.

The models are in ``pyro_models``, word for word. Their data are made here, of the same shape as the origin's where that
needs a network or a file, and with fewer rows where the origin's would only cost time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyro
import torch
from pyro import poutine

from tests.public_models.pyro_models import (
    baseball,
    capture_recapture_cjs,
    eight_schools_data,
    eight_schools_mcmc,
    eight_schools_svi,
    hmm,
    lda,
    lkj,
    minipyro,
    mixed_hmm,
    neutra,
    sir_hmc,
    sparse_gamma_def,
    sparse_regression,
    svi_horovod,
    svi_lightning,
    svi_torch,
    toy_mixture_model_discrete_enumeration,
    tutorial_bayesian_regression,
    tutorial_bayesian_regression_ii,
    tutorial_boosting_bbvi,
    tutorial_csis,
    tutorial_dirichlet_process_mixture_gaussian,
    tutorial_dirichlet_process_mixture_poisson,
    tutorial_easyguide,
    tutorial_effect_handlers,
    tutorial_effect_handlers_biased_scale,
    tutorial_enumeration_hmm,
    tutorial_enumeration_mixture,
    tutorial_enumeration_plates,
    tutorial_gmm,
    tutorial_intro_long,
    tutorial_intro_part_ii,
    tutorial_jit,
    tutorial_jit_hmm,
    tutorial_logistic_growth,
    tutorial_mle_map,
    tutorial_model_rendering_deterministic,
    tutorial_model_rendering_mace,
    tutorial_model_rendering_overlapping_plates,
    tutorial_model_rendering_params,
    tutorial_model_rendering_plate,
    tutorial_model_rendering_semisupervised,
    tutorial_modules,
    tutorial_predictive_deterministic,
    tutorial_prior_predictive,
    tutorial_prodlda_counts,
    tutorial_prodlda_dice,
    tutorial_stable,
    tutorial_svi_flow_guide,
    tutorial_svi_part_i,
    tutorial_svi_part_iii,
    tutorial_workflow,
    tutorial_workflow_sparse,
)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Case(NamedTuple):
    """One public model, its arguments, and what must come of it.

    Attributes:
        name: of the file, and of the model where the file holds several.
        model: the model as it was published, or the function that its origin makes of it.
        arguments: makes positional and keyword arguments.
        num_subsets: M.
        expected: "right" (the split's potential is the host's own) or "refused" (before sampling, with an error).
        words: what the error must say, where it is refused.
        divides: whether the likelihood is a sum over the rows of a plate, given as the model has it.
        options: ``plate`` and ``data_axes``, where a user must give them.
    """

    name: str
    model: Callable[..., Any]
    arguments: Callable[[], Arguments]
    num_subsets: int = 4
    expected: str = "right"
    words: tuple[str, ...] = ()
    divides: bool = True
    options: dict[str, Any] = {}  # noqa: RUF012


def _given(*args: Any, **kwargs: Any) -> Callable[[], Arguments]:
    return lambda: (args, kwargs)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=_generator(seed))


def _integers(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(high, shape, generator=_generator(seed))


def _flips(probability: float, *shape: int, seed: int = 0) -> torch.Tensor:
    return (torch.rand(*shape, generator=_generator(seed)) < probability).float()


def _batting() -> Arguments:
    """As many players as in Efron and Morris, each 45 times at bat."""
    at_bats = torch.full((18,), 45.0)
    return (at_bats, torch.tensor([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7.0])), {}


def _captures(num_animals: int = 24, num_periods: int = 5) -> Arguments:
    """Histories of animals each of which is seen at least once."""
    history = _flips(0.4, num_animals, num_periods)
    history[torch.arange(num_animals), torch.arange(num_animals) % (num_periods - 1)] = 1.0
    return (history, _flips(0.5, num_animals, seed=1)), {}


def _chorales(**changes: Any) -> Arguments:
    """Sequences of different lengths, padded with zeros; fewer tones and states than on a piano."""
    lengths = torch.tensor([3, 4, 2, 4, 3, 4])
    sequences = _flips(0.3, 6, 4, 5) * (torch.arange(4) < lengths[:, None])[..., None]
    args = SimpleNamespace(hidden_dim=4, nn_dim=6, nn_channels=2, jit=False)
    return (sequences, lengths, SimpleNamespace(**{**vars(args), **changes})), {}


def _documents() -> Arguments:
    args = SimpleNamespace(num_topics=3, num_words=12, num_docs=8, num_words_per_doc=6)
    return (_integers(12, 6, 8), args), {}


def _seals() -> Arguments:
    """Two groups of three seals, four time steps, every random effect continuous; some measurements missing."""
    missing = 1e-6
    step, angle = _normal(2, 3, 4).exp().transpose(0, 1), _normal(2, 3, 4, seed=1).clamp(-3, 3).transpose(0, 1)
    omega = torch.rand(3, 2, 4, generator=_generator(2)).clamp(0.05, 0.95)
    step[0, 0, 1], omega[1, 1, 2] = missing, missing
    config = {
        "MISSING": missing,
        "sizes": {"state": 3, "random": 4, "group": 2, "individual": 3, "timesteps": 4},
        "group": {"random": "continuous"},
        "individual": {"random": "continuous", "mask": torch.ones(3, 2, dtype=torch.bool)},
        "timestep": {"mask": torch.ones(3, 2, 4, dtype=torch.bool)},
        "observations": {"step": step, "angle": angle, "omega": omega},
    }
    return (config,), {}


def _epidemic(population: int, days: int) -> Arguments:
    """Few new infections; the example's global ``args`` hold the population too."""
    sir_hmc.args = SimpleNamespace(population=population, recovery_time=7.0)
    return (sir_hmc.args, torch.tensor([1.0, 0.0, 2.0, 1.0, 1.0, 0.0][:days])), {}


def _small_gamma_def() -> Callable[..., Any]:
    """The example's class, narrower."""
    family = sparse_gamma_def.SparseGammaDEF()
    family.top_width, family.mid_width, family.bottom_width, family.image_size = 4, 3, 2, 9
    return family.model


def _gamma_def_faces() -> Arguments:
    return (_integers(20, 12, 9).float(),), {}


def _interactions() -> Arguments:
    X = _normal(15, 4)
    hypers = {"expected_sparsity": 2.0, "alpha1": 3.0, "beta1": 1.0, "alpha2": 3.0, "beta2": 1.0, "alpha3": 1.0, "c": 1.0}
    return (X, X[:, 0] - 2 * X[:, 1] + X[:, 0] * X[:, 1], {k: torch.tensor(v) for k, v in hypers.items()}), {}


def _covariates() -> Arguments:
    x = _normal(40)
    return (x, 0.5 + 2 * x + 0.3 * _normal(40, seed=1)), {}


def _chain_of_flips() -> Arguments:
    pyro.set_rng_seed(0)
    prior, _, data = toy_mixture_model_discrete_enumeration.generate_data(30)
    return (prior, data, 30), {}


def _rugged(num_nations: int = 50) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Whether a nation is in Africa, its ruggedness, and the logarithm of its income."""
    africa, rugged = _flips(0.3, num_nations), _normal(num_nations, seed=1).abs()
    return africa, rugged, 9 - 2 * africa - 0.2 * rugged + 0.4 * africa * rugged + 0.9 * _normal(num_nations, seed=2)


def _rugged_matrix() -> Arguments:
    africa, rugged, income = _rugged()
    return (torch.stack([africa, rugged, africa * rugged], -1), income), {}


def _clusters() -> Arguments:
    """As many points as the first data of the tutorial, thinned; its globals with them."""
    module, centers = tutorial_dirichlet_process_mixture_gaussian, torch.tensor([[-8.0, -8], [8, 8], [1.5, 2], [-0.5, 1]])
    data = centers.repeat(5, 1) + _normal(20, 2)
    module.T, module.alpha, module.N = 3, 0.1, len(data)
    return (data,), {}


def _sunspots() -> Arguments:
    module, data = tutorial_dirichlet_process_mixture_poisson, torch.poisson(60 + 50 * _normal(20).abs(), _generator())
    module.T, module.alpha, module.N = 3, 1.1, len(data)
    return (data,), {}


def _votes() -> Arguments:
    return (_flips(0.5, 7, 24), torch.arange(24), 24), {}


def _strains(*regions: int) -> Arguments:
    """Counts of three lineages over ten days, in some regions; the tutorial's global dataset with them."""
    tutorial_logistic_growth.dataset = {"time_step_days": 14.0}
    return (torch.poisson(20 + 10 * _normal(10, *regions, 3).abs(), _generator()),), {}


def _annotations() -> Arguments:
    """Twelve items, each labelled by three of five annotators into three classes."""
    positions = torch.stack([torch.randperm(5, generator=_generator(i))[:3] for i in range(12)])
    return (positions, _integers(3, 12, 3)), {}


def _counts_of_features() -> Arguments:
    features = _normal(40, 3)
    return (features, torch.poisson(torch.exp(0.5 * features[:, 0] + 1), _generator())), {}


def _returns() -> Arguments:
    return (0.01 * _normal(16),), {}


def _mutations(sparse: bool = False) -> Arguments:
    """Three strains with two mutations each way, in six places, at seven times."""
    counts = torch.poisson(10 + 5 * _normal(7, 6, 3).abs(), _generator())
    dataset = {"features": _flips(0.5, 3, 2, seed=1), "counts": counts, "time_step_days": 14.0}
    dataset |= {"mutations": ["A", "B"], "locations": [f"place {i}" for i in range(6)]}
    if sparse:
        index = counts.nonzero(as_tuple=False).T
        total = counts.sum(-1)
        dataset["sparse_counts"] = {"index": index, "total": total, "value": counts[tuple(index)]}
    return (dataset,), {}




DISCRETE = ("discrete latent sites", "num_subsets=1")
NO_PLATE = ("plate", "num_subsets=1")
MIXED = ("num_subsets=1",)


def _whole(name: str, model: Callable[..., Any], arguments: Callable[[], Arguments], words: tuple[str, ...]) -> list[Case]:
    """A model that does not divide: refused with several subsets, and run as it is with one."""
    return [
        Case(name, model, arguments, 3, "refused", words, divides=False),
        Case(f"{name}-whole", model, arguments, 1, divides=False),
    ]


def _examples() -> list[Case]:
    scheme = functools.partial(_chorales)
    cases = [
        Case(f"baseball-{name}", getattr(baseball, name), _batting)
        for name in ("fully_pooled", "not_pooled", "partially_pooled", "partially_pooled_with_logit")
    ]
    for i in range(1, 6):
        model = getattr(capture_recapture_cjs, f"model_{i}")
        cases += _whole(f"capture_recapture_cjs-{i}", model, _captures, DISCRETE)
    school = (eight_schools_mcmc.model, eight_schools_data.sigma, eight_schools_data.y)
    cases += _whole("eight_schools_mcmc", eight_schools_mcmc.conditioned_model, _given(*school), NO_PLATE)
    cases += _whole("eight_schools_svi", eight_schools_svi.model, _given(eight_schools_svi.data), MIXED)
    for i in range(6):
        cases += _whole(f"hmm-{i}", getattr(hmm, f"model_{i}"), scheme, DISCRETE)
    cases.append(Case("hmm-7", hmm.model_7, scheme, 3, options={"plate": "sequences"}))
    cases += _whole("lda", lda.model, _documents, DISCRETE)
    cases.append(Case("lkj", lkj.model, _given(_normal(40, 3).double())))
    cases.append(Case("minipyro", minipyro.model, _given(_normal(100) + 3.0)))
    cases += _whole("mixed_hmm", mixed_hmm.model_generic, _seals, DISCRETE)
    cases += _whole("neutra", neutra.model, _given(1.15, 1.0), NO_PLATE)
    tiny, small = functools.partial(_epidemic, 3, 3), functools.partial(_epidemic, 50, 6)
    cases += _whole("sir_hmc-reparameterized", sir_hmc.reparameterized_discrete_model, tiny, DISCRETE)
    cases += _whole("sir_hmc-continuous", sir_hmc.continuous_model, small, DISCRETE)
    cases += _whole("sir_hmc-vectorized", sir_hmc.vectorized_model, small, NO_PLATE)
    cases.append(Case("sparse_gamma_def", _small_gamma_def(), _gamma_def_faces, 3))
    cases += _whole("sparse_regression", sparse_regression.model, _interactions, NO_PLATE)
    for module in (svi_horovod, svi_lightning, svi_torch):
        cases.append(Case(module.__name__.rsplit(".", 1)[1], module.Model(40), _covariates))
    toy = toy_mixture_model_discrete_enumeration
    return cases + _whole("toy_mixture_model_discrete_enumeration", toy.model, _chain_of_flips, DISCRETE)


def _tutorials() -> list[Case]:
    tails = torch.tensor([1.0] * 6 + [0.0] * 4)
    bayesian = tutorial_bayesian_regression.BayesianRegression(3, 1)
    scale = tutorial_intro_part_ii
    measured = {"measurement": torch.tensor(9.5)}
    conditioned = poutine.condition(tutorial_effect_handlers.scale, data=measured)
    biased = poutine.condition(tutorial_effect_handlers_biased_scale.biased_scale, data=measured)
    growth, fairness, modules = tutorial_logistic_growth, tutorial_mle_map, tutorial_modules
    clusters = tutorial_dirichlet_process_mixture_gaussian.model
    spots = tutorial_dirichlet_process_mixture_poisson.model
    words = tutorial_enumeration_hmm.hmm_model
    by_region = {"plate": "region", "data_axes": {"counts": 1}}
    flow = tutorial_svi_flow_guide
    x_star = flow.likelihood(_normal(12, 3)).mean + 0.1 * _normal(5, 12, 2, seed=1)
    return [
        Case("tutorial_bayesian_regression", bayesian, _rugged_matrix),
        Case("tutorial_bayesian_regression_ii", tutorial_bayesian_regression_ii.model, _given(*_rugged())),
        Case("tutorial_boosting_bbvi", tutorial_boosting_bbvi.model, _given(4.0 + 0.1 * _normal(20))),
        *_whole("tutorial_csis", tutorial_csis.model, _scores, NO_PLATE),
        *_whole("tutorial_dirichlet_process_mixture_gaussian", clusters, _clusters, DISCRETE),
        *_whole("tutorial_dirichlet_process_mixture_poisson", spots, _sunspots, DISCRETE),
        Case("tutorial_easyguide", tutorial_easyguide.model, _votes, options={"data_axes": {"batch": 1, "subsample": 0}}),
        *_whole("tutorial_effect_handlers", conditioned, _given(8.5), NO_PLATE),
        *_whole("tutorial_effect_handlers_biased_scale", biased, _given(8.5), NO_PLATE),
        *_whole("tutorial_enumeration_plates", tutorial_enumeration_plates.model, _given(), DISCRETE),
        *_whole("tutorial_enumeration_mixture", tutorial_enumeration_mixture.model, _given(_normal(10)), DISCRETE),
        *_whole("tutorial_enumeration_hmm", words, _given(_integers(3, 6), 3, 4), DISCRETE),
        *_whole("tutorial_gmm", tutorial_gmm.model, _given(tutorial_gmm.data), DISCRETE),
        Case("tutorial_intro_long", tutorial_intro_long.model, _given(*_rugged())),
        *_whole("tutorial_intro_part_ii-conditioned_scale", scale.conditioned_scale, _given(8.5), NO_PLATE),
        *_whole(
            "tutorial_intro_part_ii-deferred_conditioned_scale",
            scale.deferred_conditioned_scale,
            _given(torch.tensor(9.5), 8.5),
            NO_PLATE,
        ),
        *_whole("tutorial_intro_part_ii-scale_obs", scale.scale_obs, _given(8.5), NO_PLATE),
        Case("tutorial_jit", tutorial_jit.model, _given(0.5 + 2.0 * _normal(100))),
        *_whole("tutorial_jit_hmm", tutorial_jit_hmm.model, _given(_normal(6), 10, 6, 3), DISCRETE),
        *_whole("tutorial_logistic_growth-basic", growth.basic_model, _strains, MIXED),
        Case("tutorial_logistic_growth-regional", growth.regional_model, _six_regions, 3, options=by_region),
        Case("tutorial_logistic_growth-regional2", growth.regional_model2, _six_regions, 3, options=by_region),
        Case("tutorial_mle_map-original", fairness.original_model, _given(tails)),
        Case("tutorial_mle_map-masked", fairness.masked_model, _given(tails)),
        Case("tutorial_mle_map-uniform_prior", fairness.original_model_uniform_prior, _given(tails)),
        Case("tutorial_model_rendering_plate", tutorial_model_rendering_plate.model, _given(1.0 + _normal(10))),
        *_whole("tutorial_model_rendering_mace", tutorial_model_rendering_mace.mace, _annotations, DISCRETE),
        Case("tutorial_model_rendering_params", tutorial_model_rendering_params.model, _given(1.0 + _normal(10))),
        *_whole(
            "tutorial_model_rendering_overlapping_plates",
            tutorial_model_rendering_overlapping_plates.model,
            _given(),
            MIXED,
        ),
        Case("tutorial_model_rendering_semisupervised", tutorial_model_rendering_semisupervised.model, _pairs, 2),
        Case(
            "tutorial_model_rendering_deterministic",
            tutorial_model_rendering_deterministic.model_deterministic,
            _given(1.0 + _normal(10)),
        ),
        Case("tutorial_modules-GlobalModel", modules.GlobalModel(), _given(1.0 + _normal(12))),
        Case("tutorial_modules-LocalModel", modules.LocalModel(), _given(1.0 + _normal(12))),
        Case("tutorial_modules-Model", modules.Model(5, 2), _given(_normal(12, 5), _normal(12, 2, seed=1))),
        Case("tutorial_predictive_deterministic", tutorial_predictive_deterministic.model, _counts_of_features),
        *_whole("tutorial_prior_predictive", tutorial_prior_predictive.model2, _series, MIXED),
        *_whole("tutorial_prodlda_counts", tutorial_prodlda_counts.model, _given(tutorial_prodlda_counts.counts), NO_PLATE),
        Case("tutorial_prodlda_dice", tutorial_prodlda_dice.model, _given(tutorial_prodlda_counts.data - 1)),
        *_whole("tutorial_stable", tutorial_stable.reparam_model, _returns, NO_PLATE),
        Case("tutorial_svi_flow_guide", flow.model, _given(x_star), options={"plate": "data", "data_axes": {"x": 1}}),
        *_whole("tutorial_svi_part_i", tutorial_svi_part_i.model, _given(list(tails)), NO_PLATE),
        *_whole("tutorial_svi_part_iii", tutorial_svi_part_iii.BernoulliBetaExample(10).model, _given(False), MIXED),
        *_whole("tutorial_workflow", tutorial_workflow.model, _mutations, MIXED),
        *_whole("tutorial_workflow_sparse", tutorial_workflow_sparse.model, _sparse_mutations, NO_PLATE),
    ]


def _scores() -> Arguments:
    return (torch.tensor(1.0),), {"observations": {"x1": torch.tensor(8.0), "x2": torch.tensor(9.0)}}


def _six_regions() -> Arguments:
    return _strains(6)


def _pairs() -> Arguments:
    return (torch.tensor([0.3, -1.2]),), {"y": torch.tensor([0.5, -0.7])}


def _series() -> Arguments:
    return (20,), {"data": _normal(20).cumsum(0)}


def _sparse_mutations() -> Arguments:
    return _mutations(sparse=True)


CASES = _examples() + _tutorials()
