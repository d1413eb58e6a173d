# Copyright Contributors to the Pyro project.
# SPDX-License-Identifier: Apache-2.0
# Definitions of https://github.com/pyro-ppl/pyro/blob/ff6ae1c9572591791aae8842bcd702fcf0b46fd6/tutorial/source/effect_handlers.ipynb, cell 32 and 34 (unchanged)

import torch

import pyro
import pyro.distributions as dist
from pyro.poutine.runtime import effectful


@effectful(type="apply")
def add(x, y):
    return x + y


@effectful(type="apply")
def mul(x, y):
    return x * y


@effectful(type="apply")
def sigmoid(x):
    return torch.sigmoid(x)


@effectful(type="apply")
def normal(loc, scale):
    return dist.Normal(loc, scale)


def biased_scale(guess):
    weight = pyro.sample("weight", normal(guess, 1.))
    tolerance = pyro.sample("tolerance", normal(0., 0.25))
    return pyro.sample("measurement", normal(add(mul(weight, 0.8), 1.), sigmoid(tolerance)))
