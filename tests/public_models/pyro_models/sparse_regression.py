# Copyright (c) 2017-2019 Uber Technologies, Inc.
# SPDX-License-Identifier: Apache-2.0
# Definitions of https://github.com/pyro-ppl/pyro/blob/ff6ae1c9572591791aae8842bcd702fcf0b46fd6/examples/sparse_regression.py (unchanged)

import math

import torch

import pyro
import pyro.distributions as dist


def dot(X, Z):
    return torch.mm(X, Z.t())


def kernel(X, Z, eta1, eta2, c):
    eta1sq, eta2sq = eta1.pow(2.0), eta2.pow(2.0)
    k1 = 0.5 * eta2sq * (1.0 + dot(X, Z)).pow(2.0)
    k2 = -0.5 * eta2sq * dot(X.pow(2.0), Z.pow(2.0))
    k3 = (eta1sq - eta2sq) * dot(X, Z)
    k4 = c**2 - 0.5 * eta2sq
    return k1 + k2 + k3 + k4


def model(X, Y, hypers, jitter=1.0e-4):
    S, P, N = hypers["expected_sparsity"], X.size(1), X.size(0)

    sigma = pyro.sample("sigma", dist.HalfNormal(hypers["alpha3"]))
    phi = sigma * (S / math.sqrt(N)) / (P - S)
    eta1 = pyro.sample("eta1", dist.HalfCauchy(phi))

    msq = pyro.sample("msq", dist.InverseGamma(hypers["alpha1"], hypers["beta1"]))
    xisq = pyro.sample("xisq", dist.InverseGamma(hypers["alpha2"], hypers["beta2"]))

    eta2 = eta1.pow(2.0) * xisq.sqrt() / msq

    lam = pyro.sample(
        "lambda", dist.HalfCauchy(torch.ones(P, device=X.device)).to_event(1)
    )
    kappa = msq.sqrt() * lam / (msq + (eta1 * lam).pow(2.0)).sqrt()
    kX = kappa * X

    # compute the kernel for the given hyperparameters
    k = kernel(kX, kX, eta1, eta2, hypers["c"]) + (sigma**2 + jitter) * torch.eye(
        N, device=X.device
    )

    # observe the outputs Y
    pyro.sample(
        "Y",
        dist.MultivariateNormal(torch.zeros(N, device=X.device), covariance_matrix=k),
        obs=Y,
    )
