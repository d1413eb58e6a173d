# Copyright (c) 2017-2019 Uber Technologies, Inc.
# SPDX-License-Identifier: Apache-2.0
# Definitions of https://github.com/pyro-ppl/pyro/blob/ff6ae1c9572591791aae8842bcd702fcf0b46fd6/examples/eight_schools/svi.py (unchanged)

import torch

import pyro
import pyro.distributions as dist

from .eight_schools_data import J, sigma, y

data = torch.stack([y, sigma], dim=1)


def model(data):
    y = data[:, 0]
    sigma = data[:, 1]

    with pyro.plate("data", J):
        eta = pyro.sample("eta", dist.Normal(torch.zeros(J), torch.ones(J)))
        mu = pyro.sample("mu", dist.Normal(torch.zeros(1), 10 * torch.ones(1)))
        tau = pyro.sample("tau", dist.HalfCauchy(scale=25 * torch.ones(1)))

        theta = mu + tau * eta

        pyro.sample("obs", dist.Normal(theta, sigma), obs=y)
