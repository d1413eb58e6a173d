"""``benchmarks.gpu`` runs on a CPU, has the paper's network in both frameworks, and lets no CPU pass for a GPU."""

import json

import numpy as np
import pytest

from benchmarks.common.shapes import SHAPES
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.devices import check_places, machine_gpus
from tests.backends import PACKAGES


@pytest.mark.parametrize("framework", PACKAGES)
@pytest.mark.parametrize(
    "target", ["tall", pytest.param("softmax", marks=pytest.mark.slow), pytest.param("pooled", marks=pytest.mark.slow)]
)
def test_quick_on_a_cpu(framework, target, tmp_path):
    file = tmp_path / "found.json"
    options = ["--quick", "--device", "cpu", "--framework", framework, "--targets", target, "--subsets", "4"]
    gpu.main([*options, "--json", str(file)])
    report = json.loads(file.read_text())
    assert report["settings"]["device"] == "cpu"
    (cell,) = report["results"]
    assert cell["on"]["platform"] == "cpu"
    assert cell["on"]["device"]
    assert cell["num_grads"] == 2 * (2 * 4 - 2)
    assert cell["gradient_ms"]["median"] > 0
    assert (cell["planned_mib"] is not None) == (framework == "numpyro")
    assert cell["peak_mib"] is None


def test_the_papers_network_has_38390_weights():
    assert sum(np.prod(shape) for shape in SHAPES["pooled"].values()) == 38_390


@pytest.mark.both_packages
def test_the_network_is_one_in_both_frameworks_and_by_either_convolution():
    import jax
    import torch

    from benchmarks.common import numpyro_models, pyro_models

    rng = np.random.default_rng(0)
    z = {name: rng.normal(0, 0.3, shape) for name, shape in SHAPES["pooled"].items()}
    x = rng.random((2, 28, 28))
    by_torch = pyro_models.pooled_logits({name: torch.tensor(u) for name, u in z.items()}, torch.tensor(x)).numpy()
    for convolve in (numpyro_models.convolve_patches, numpyro_models.convolve_lax, numpyro_models.convolve_for_device):
        by_jax = jax.jit(lambda z, x, convolve=convolve: numpyro_models.pooled_logits(z, x, convolve))(z, x)
        np.testing.assert_allclose(by_jax, by_torch, rtol=1e-9)


def test_what_lies_on_the_cpu_is_found():
    check_places({"x": "gpu", "z": "gpu"}, "gpu")
    with pytest.raises(RuntimeError, match=r"all must lie on the gpu, got \{'z': 'cpu'\}"):
        check_places({"x": "gpu", "z": "cpu"}, "gpu")


@pytest.mark.skipif(bool(machine_gpus()), reason="this machine has a GPU")
@pytest.mark.parametrize("framework", PACKAGES)
def test_a_framework_without_the_gpu_that_is_asked_for_fails(framework):
    cells = gpu.cells_of(gpu.parse_options(["--quick", "--targets", "tall"]), framework, "gpu")
    with pytest.raises(RuntimeError, match=r"all must lie on the gpu, got"):
        gpu.run(cells[:1])
