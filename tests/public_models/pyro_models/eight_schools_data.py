# Copyright (c) 2017-2019 Uber Technologies, Inc.
# SPDX-License-Identifier: Apache-2.0
# Definitions of https://github.com/pyro-ppl/pyro/blob/ff6ae1c9572591791aae8842bcd702fcf0b46fd6/examples/eight_schools/data.py (unchanged)

import torch

J = 8

y = torch.tensor([28, 8, -3, 7, -1, 1, 18, 12]).type(torch.Tensor)

sigma = torch.tensor([15, 10, 16, 11, 9, 11, 10, 18]).type(torch.Tensor)
