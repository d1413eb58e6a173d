"""Pyro's examples and tutorials as cases: what each model is run on, and what a split kernel must make of it.

The models are in ``pyro_models``, word for word. Their data are made here, of the same shape as the origin's where that
needs a network or a file, and with fewer rows where the origin's would only cost time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyro
import torch
from pyro import poutine
from pyro.infer.autoguide import init_to_uniform, init_to_value

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
    tutorial_working_memory,
)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Case(NamedTuple):
    """One public model, its arguments, and what must come of it.

    Attributes:
        name: of the file, and of the model where the file holds several.
        model: the model as it was published, or what its origin makes of it.
        arguments: makes positional and keyword arguments, and sets the globals that the model reads.
        num_subsets: M.
        expected: "right" (the split's potential is the host's own) or "refused" (before sampling, with an error).
        words: a regular expression that the message of a refusal must match.
        plate: the data plate, where it has to be named.
        data_axes: the axes of the rows, where they have to be named.
        init_strategy: where the chain starts, where most of the model's states are impossible.
        by_logarithm: sites without a variance, whose logarithms are compared with the host's.
        num_samples: draws that a chain starts with, where posteriors are compared.
        host: which host the model is written for.
    """

    name: str
    model: Callable[..., Any]
    arguments: Callable[[], Arguments]
    num_subsets: int = 4
    expected: str = "right"
    words: str = ""
    plate: str | None = None
    data_axes: dict[str, int | None] | None = None
    init_strategy: Callable[..., Any] = init_to_uniform
    by_logarithm: tuple[str, ...] = ()
    num_samples: int = 1000
    host: str = "pyro"

    @property
    def divides(self) -> bool:
        """Whether the model divides over rows."""
        return self.num_subsets > 1 and self.expected == "right"

    def build(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The model, its positional and its keyword arguments."""
        return self.model, *self.arguments()


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


def _chorales(jit: bool = False) -> Arguments:
    """Sequences of different lengths, padded with zeros; fewer tones and states than on a piano."""
    lengths = torch.tensor([3, 2, 4, 2, 3, 4])  # the longest of two at a time differs
    sequences = _flips(0.3, 6, 4, 5) * (torch.arange(4) < lengths[:, None])[..., None]
    return (sequences, lengths, SimpleNamespace(hidden_dim=4, nn_dim=6, nn_channels=2, jit=jit)), {}


def _padded_chorales() -> Arguments:
    """All steps of every sequence, whatever the longest in hand; the example's switch for that."""
    return _chorales(jit=True)


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
    return (sir_hmc.args, torch.tensor([1.0, 0.0, 1.0, 2.0, 1.0, 0.0][:days])), {}


def _feasible_start(site: dict[str, Any] | None = None) -> Any:
    """Where the example itself starts: most states of an epidemic are impossible."""
    args, data = _epidemic(50, 6)[0]
    return init_to_value(site, sir_hmc.heuristic_init(args, data))


def _small_gamma_def() -> Callable[..., Any]:
    """The example's class, narrower."""
    family = sparse_gamma_def.SparseGammaDEF()
    family.top_width, family.mid_width, family.bottom_width, family.image_size = 2, 1, 1, 3
    return family.model


def _gamma_def_faces() -> Arguments:
    """Six faces of three pixels, each a brightness of its own times one pattern: what the one bottom unit can say."""
    brightness = torch.tensor([0.1, 0.3, 0.5, 1.0, 2.0, 3.0])
    return (torch.poisson(brightness[:, None] * torch.tensor([2.0, 5.0, 12.0]), _generator()),), {}


def _interactions() -> Arguments:
    X = _normal(15, 4)
    hypers = {
        "expected_sparsity": 2.0,
        "alpha1": 3.0,
        "beta1": 1.0,
        "alpha2": 3.0,
        "beta2": 1.0,
        "alpha3": 1.0,
        "c": 1.0,
    }
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
    module, centers = (
        tutorial_dirichlet_process_mixture_gaussian,
        torch.tensor([[-8.0, -8], [8, 8], [1.5, 2], [-0.5, 1]]),
    )
    data = centers.repeat(5, 1) + _normal(20, 2)
    module.T, module.alpha, module.N = 3, 0.1, len(data)
    return (data,), {}


def _sunspots() -> Arguments:
    module, data = tutorial_dirichlet_process_mixture_poisson, torch.poisson(60 + 50 * _normal(20).abs(), _generator())
    module.T, module.alpha, module.N = 3, 1.1, len(data)
    return (data,), {}


def _votes() -> Arguments:
    return (_flips(0.5, 4, 12), torch.arange(12), 12), {}


def _strains(*regions: int) -> Arguments:
    """Counts of three lineages at six times, in some regions; the tutorial's global dataset with them."""
    tutorial_logistic_growth.dataset = {"time_step_days": 3.0}
    return (torch.poisson(3 + 2 * _normal(6, *regions, 3).abs(), _generator()),), {}


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


def _tiny_epidemic() -> Arguments:
    return _epidemic(3, 3)


def _small_epidemic() -> Arguments:
    return _epidemic(50, 6)


TOSSES = torch.tensor([1.0] * 6 + [0.0] * 4)


def _measured(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model with the tutorial's measurement."""
    return poutine.condition(model, data={"measurement": torch.tensor(9.5)})


def _remembered() -> Callable[..., Any]:
    """The model with ten answers."""
    return poutine.condition(tutorial_working_memory.model, data={"y": torch.tensor([1.0] * 5 + [0, 1, 1, 0, 0])})


def _signals() -> Arguments:
    """Five noisy observations of each of twelve points."""
    return (_normal(12, 3)[:, :2] + 0.1 * _normal(5, 12, 2, seed=1),), {}


def _scores() -> Arguments:
    return (torch.tensor(1.0),), {"observations": {"x1": torch.tensor(8.0), "x2": torch.tensor(9.0)}}


def _six_regions() -> Arguments:
    return _strains(6)


def _six_growing_regions() -> Arguments:
    """Some 20 sequences a time and region, grown at rates of each region's own, as the tutorial's second model has it.

    Counts that say little of the rates leave a funnel, on which two chains of the host's NUTS never agree.
    """
    tutorial_logistic_growth.dataset = {"time_step_days": 3.0}
    rate, init = 0.5 * _normal(3) + _normal(6, 3, seed=1), _normal(6, 3, seed=2)
    shares = torch.softmax(init + rate * torch.arange(6.0)[:, None, None] * 3.0 / 5.5, -1)
    return (torch.poisson(20.0 * shares, _generator()),), {}


def _pairs() -> Arguments:
    return (torch.tensor([0.3, -1.2]),), {"y": torch.tensor([0.5, -0.7])}


def _series() -> Arguments:
    return (20,), {"data": _normal(20).cumsum(0)}


def _sparse_mutations() -> Arguments:
    return _mutations(sparse=True)


TAKES_WHOLE = "num_subsets=1"  # what the refusal of a model that does not divide must point to
NAMES_PLATE = "plate must be given"
NAMES_AXES = "data_axes"


def _whole(name: str, model: Callable[..., Any], arguments: Callable[[], Arguments], **options: Any) -> list[Case]:
    """A model that does not divide: refused with several subsets, and run as it is with one."""
    return [
        Case(f"{name} M=3", model, arguments, 3, "refused", TAKES_WHOLE, **options),
        Case(f"{name} M=1", model, arguments, 1, **options),
    ]


def _told(
    name: str, model: Callable[..., Any], arguments: Callable[[], Arguments], words: str, **options: Any
) -> list[Case]:
    """A model that divides once the user has named plate and axes, which the refusal before that must ask for."""
    plate = options.get("plate") if words == NAMES_AXES else None
    return [
        Case(f"{name} untold", model, arguments, 3, "refused", words, plate=plate),
        Case(name, model, arguments, 3, **options),
    ]


EXAMPLES = [
    *(
        Case(f"baseball-{name}", getattr(baseball, name), _batting)
        for name in ("fully_pooled", "not_pooled", "partially_pooled", "partially_pooled_with_logit")
    ),
    *(
        case
        for i in range(1, 6)
        for case in _whole(f"capture_recapture_cjs-{i}", getattr(capture_recapture_cjs, f"model_{i}"), _captures)
    ),
    *_whole(
        "eight_schools_mcmc",
        eight_schools_mcmc.conditioned_model,
        _given(eight_schools_mcmc.model, eight_schools_data.sigma, eight_schools_data.y),
    ),
    *_whole("eight_schools_svi", eight_schools_svi.model, _given(eight_schools_svi.data)),
    *(case for i in range(6) for case in _whole(f"hmm-{i}", getattr(hmm, f"model_{i}"), _chorales)),
    Case("hmm-7", hmm.model_7, _chorales, 3),
    Case("hmm-7 jit", hmm.model_7, _padded_chorales, 3),
    *_whole("lda", lda.model, _documents),
    Case("lkj", lkj.model, _given(_normal(40, 3).double())),
    Case("minipyro", minipyro.model, _given(_normal(100) + 3.0)),
    *_whole("mixed_hmm", mixed_hmm.model_generic, _seals),
    *_whole("neutra", neutra.model, _given(1.15, 1.0)),
    *_whole("sir_hmc-reparameterized", sir_hmc.reparameterized_discrete_model, _tiny_epidemic),
    *_whole("sir_hmc-continuous", sir_hmc.continuous_model, _small_epidemic, init_strategy=_feasible_start),
    *_whole("sir_hmc-vectorized", sir_hmc.vectorized_model, _small_epidemic, init_strategy=_feasible_start),
    Case("sparse_gamma_def", _small_gamma_def(), _gamma_def_faces, 2, num_samples=2000),
    *_whole("sparse_regression", sparse_regression.model, _interactions),
    Case("svi_horovod", svi_horovod.Model(40), _covariates),
    Case("svi_lightning", svi_lightning.Model(40), _covariates),
    Case("svi_torch", svi_torch.Model(40), _covariates),
    *_whole("toy_mixture_model_discrete_enumeration", toy_mixture_model_discrete_enumeration.model, _chain_of_flips),
]

TUTORIALS = [
    Case("tutorial_bayesian_regression", tutorial_bayesian_regression.BayesianRegression(3, 1), _rugged_matrix),
    Case("tutorial_bayesian_regression_ii", tutorial_bayesian_regression_ii.model, _given(*_rugged())),
    Case("tutorial_boosting_bbvi", tutorial_boosting_bbvi.model, _given(4.0 + 0.1 * _normal(20))),
    *_whole("tutorial_csis", tutorial_csis.model, _scores),
    *_whole(
        "tutorial_dirichlet_process_mixture_gaussian", tutorial_dirichlet_process_mixture_gaussian.model, _clusters
    ),
    *_whole("tutorial_dirichlet_process_mixture_poisson", tutorial_dirichlet_process_mixture_poisson.model, _sunspots),
    *_told(
        "tutorial_easyguide",
        tutorial_easyguide.model,
        _votes,
        NAMES_AXES,
        data_axes={"batch": 1, "subsample": 0},
        num_samples=2000,
    ),
    *_whole("tutorial_effect_handlers", _measured(tutorial_effect_handlers.scale), _given(8.5)),
    *_whole(
        "tutorial_effect_handlers_biased_scale",
        _measured(tutorial_effect_handlers_biased_scale.biased_scale),
        _given(8.5),
    ),
    *_whole("tutorial_enumeration_plates", tutorial_enumeration_plates.model, _given()),
    *_whole("tutorial_enumeration_mixture", tutorial_enumeration_mixture.model, _given(_normal(10))),
    *_whole("tutorial_enumeration_hmm", tutorial_enumeration_hmm.hmm_model, _given(_integers(3, 6), 3, 4)),
    *_whole("tutorial_gmm", tutorial_gmm.model, _given(tutorial_gmm.data)),
    Case("tutorial_intro_long", tutorial_intro_long.model, _given(*_rugged())),
    *_whole("tutorial_intro_part_ii-conditioned_scale", tutorial_intro_part_ii.conditioned_scale, _given(8.5)),
    *_whole(
        "tutorial_intro_part_ii-deferred_conditioned_scale",
        tutorial_intro_part_ii.deferred_conditioned_scale,
        _given(torch.tensor(9.5), 8.5),
    ),
    *_whole("tutorial_intro_part_ii-scale_obs", tutorial_intro_part_ii.scale_obs, _given(8.5)),
    Case("tutorial_jit", tutorial_jit.model, _given(0.5 + 2.0 * _normal(100))),
    *_whole("tutorial_jit_hmm", tutorial_jit_hmm.model, _given(_normal(6), 10, 6, 3)),
    Case("tutorial_logistic_growth-basic", tutorial_logistic_growth.basic_model, _strains),
    Case(
        "tutorial_logistic_growth-regional time", tutorial_logistic_growth.regional_model, _six_regions, 3, plate="time"
    ),
    Case(
        "tutorial_logistic_growth-regional2 time",
        tutorial_logistic_growth.regional_model2,
        _six_growing_regions,
        3,
        plate="time",
    ),
    *_told(
        "tutorial_logistic_growth-regional",
        tutorial_logistic_growth.regional_model,
        _six_regions,
        NAMES_AXES,
        plate="region",
        data_axes={"counts": 1},
    ),
    *_told(
        "tutorial_logistic_growth-regional2",
        tutorial_logistic_growth.regional_model2,
        _six_growing_regions,
        NAMES_AXES,
        plate="region",
        data_axes={"counts": 1},
    ),
    Case("tutorial_mle_map-original", tutorial_mle_map.original_model, _given(TOSSES)),
    Case("tutorial_mle_map-masked", tutorial_mle_map.masked_model, _given(TOSSES)),
    Case("tutorial_mle_map-uniform_prior", tutorial_mle_map.original_model_uniform_prior, _given(TOSSES)),
    Case("tutorial_model_rendering_plate", tutorial_model_rendering_plate.model, _given(1.0 + _normal(10))),
    *_whole("tutorial_model_rendering_mace", tutorial_model_rendering_mace.mace, _annotations),
    Case("tutorial_model_rendering_params", tutorial_model_rendering_params.model, _given(1.0 + _normal(10))),
    *_whole(
        "tutorial_model_rendering_overlapping_plates",
        tutorial_model_rendering_overlapping_plates.model,
        _given(),
    ),
    Case("tutorial_model_rendering_semisupervised", tutorial_model_rendering_semisupervised.model, _pairs, 2),
    Case(
        "tutorial_model_rendering_deterministic",
        tutorial_model_rendering_deterministic.model_deterministic,
        _given(1.0 + _normal(10)),
    ),
    Case("tutorial_modules-GlobalModel", tutorial_modules.GlobalModel(), _given(1.0 + _normal(12))),
    Case("tutorial_modules-LocalModel", tutorial_modules.LocalModel(), _given(1.0 + _normal(12))),
    Case("tutorial_modules-Model", tutorial_modules.Model(5, 2), _given(_normal(12, 5), _normal(12, 2, seed=1))),
    Case("tutorial_predictive_deterministic", tutorial_predictive_deterministic.model, _counts_of_features),
    *_whole("tutorial_prior_predictive", tutorial_prior_predictive.model2, _series),
    *_whole("tutorial_prodlda_counts", tutorial_prodlda_counts.model, _given(tutorial_prodlda_counts.counts)),
    Case("tutorial_prodlda_dice", tutorial_prodlda_dice.model, _given(tutorial_prodlda_counts.data - 1)),
    *_whole("tutorial_stable", tutorial_stable.reparam_model, _returns),
    *_told(
        "tutorial_svi_flow_guide",
        tutorial_svi_flow_guide.model,
        _signals,
        NAMES_PLATE,
        plate="data",
        data_axes={"x": 1},
    ),
    *_whole("tutorial_svi_part_i", tutorial_svi_part_i.model, _given(list(TOSSES))),
    Case("tutorial_svi_part_iii", tutorial_svi_part_iii.BernoulliBetaExample(10).model, _given(False), 3),
    *_whole("tutorial_workflow", tutorial_workflow.model, _mutations),
    *_whole("tutorial_workflow_sparse", tutorial_workflow_sparse.model, _sparse_mutations),
    *_whole("tutorial_working_memory", _remembered(), _given(torch.arange(1.0, 11.0))),
]

CASES = EXAMPLES + TUTORIALS

_NETWORKS = "likelihood and amortised guide are networks, which SVI trains and HMC does not sample"
_CONTRIBUTED = "written with a module of pyro.contrib"
_NO_MODEL = "holds no model"
_DISCRETE_ONLY = "has no continuous latent site: language games over finite sets, summed by a search of its own"


def _excluded(reason: str, *paths: str) -> dict[str, str]:
    return dict.fromkeys(paths, reason)


EXCLUDED = {
    **_excluded(
        _NO_MODEL,
        "examples/__init__.py",
        "examples/air/main.py",
        "examples/air/modules.py",
        "examples/air/viz.py",
        "examples/contrib/__init__.py",
        "examples/contrib/funsor/__init__.py",
        "examples/cvae/__init__.py",
        "examples/cvae/baseline.py",
        "examples/cvae/main.py",
        "examples/cvae/mnist.py",
        "examples/cvae/util.py",
        "examples/einsum.py",
        "examples/mixed_hmm/__init__.py",
        "examples/mixed_hmm/experiment.py",
        "examples/mixed_hmm/seal_data.py",
        "examples/scanvi/__init__.py",
        "examples/vae/utils/__init__.py",
        "examples/vae/utils/custom_mlp.py",
        "examples/vae/utils/mnist_cached.py",
        "examples/vae/utils/vae_plots.py",
        "tutorial/source/custom_objectives.ipynb",
        "tutorial/source/cvae.ipynb",
        "tutorial/source/dmm.ipynb",
        "tutorial/source/normalizing_flows_intro.ipynb",
        "tutorial/source/svi_part_ii.ipynb",
        "tutorial/source/svi_part_iv.ipynb",
    ),
    **_excluded(
        _NETWORKS,
        "examples/air/air.py",
        "examples/cvae/cvae.py",
        "examples/dmm.py",
        "examples/scanvi/scanvi.py",
        "examples/vae/ss_vae_M2.py",
        "examples/vae/vae.py",
        "examples/vae/vae_comparison.py",
        "tutorial/source/air.ipynb",
        "tutorial/source/scanvi.ipynb",
        "tutorial/source/ss-vae.ipynb",
        "tutorial/source/vae.ipynb",
        "tutorial/source/vae_flow_prior.ipynb",
    ),
    **_excluded(
        _CONTRIBUTED,
        "examples/contrib/autoname/mixture.py",
        "examples/contrib/autoname/scoping_mixture.py",
        "examples/contrib/autoname/tree_data.py",
        "examples/contrib/cevae/synthetic.py",
        "examples/contrib/epidemiology/regional.py",
        "examples/contrib/epidemiology/sir.py",
        "examples/contrib/forecast/bart.py",
        "examples/contrib/funsor/hmm.py",
        "examples/contrib/gp/sv-dkl.py",
        "examples/contrib/mue/FactorMuE.py",
        "examples/contrib/mue/ProfileHMM.py",
        "examples/contrib/oed/ab_test.py",
        "examples/contrib/oed/gp_bayes_opt.py",
        "examples/contrib/timeseries/gp_models.py",
        "tutorial/source/bo.ipynb",
        "tutorial/source/contrib_funsor_intro_i.ipynb",
        "tutorial/source/contrib_funsor_intro_ii.ipynb",
        "tutorial/source/ekf.ipynb",
        "tutorial/source/epi_intro.ipynb",
        "tutorial/source/forecasting_dlm.ipynb",
        "tutorial/source/forecasting_i.ipynb",
        "tutorial/source/forecasting_ii.ipynb",
        "tutorial/source/forecasting_iii.ipynb",
        "tutorial/source/gp.ipynb",
        "tutorial/source/gplvm.ipynb",
    ),
    **_excluded(
        _DISCRETE_ONLY,
        "examples/rsa/generics.py",
        "examples/rsa/hyperbole.py",
        "examples/rsa/schelling.py",
        "examples/rsa/schelling_false.py",
        "examples/rsa/search_inference.py",
        "examples/rsa/semantic_parsing.py",
        "tutorial/source/RSA-hyperbole.ipynb",
        "tutorial/source/RSA-implicature.ipynb",
    ),
    "examples/inclined_plane.py": "Pyro's own HMC cannot run it: its simulator leaves torch, `mu.numpy()`",
    "examples/smcfilter.py": "a state-space model in two methods that a particle filter calls step by step",
    "tutorial/source/elections.ipynb": "a design to be chosen, never conditioned on results; its prior needs files",
    "tutorial/source/intro_part_i.ipynb": "draws from priors; nothing is observed",
    "tutorial/source/tensor_shapes.ipynb": "shows shapes; no observed site rests on a continuous latent one",
    "tutorial/source/tracking_1d.ipynb": "Pyro's own HMC cannot run it: its discrete sites do not broadcast",
}
