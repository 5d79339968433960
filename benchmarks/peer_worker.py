"""Runs other libraries in an environment of their own and reports times: started by peers.py, one thread.

`python peer_worker.py DATA.npz` reads requests from standard input, one JSON object a line, and answers each with one:
`{"peer": "opacus", "dtype": "float32", "rows": 20000, "mode": "hooks"}` gives `{"seconds": 0.011}`, the CPU time of one
step or fit. The first line it writes has the versions.
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version

warnings.simplefilter("ignore")

import numpy as np
import torch
from diffprivlib.models import LogisticRegression
from opacus.grad_sample.utils import wrap_model
from opacus.optimizers import DPOptimizer

torch.set_num_threads(1)
L2, ETA = 0.01, 0.1
X, Y = (np.load(sys.argv[1])[name] for name in ("X", "y"))


def torch_step(dtype: str) -> Callable[[], None]:
    """Return a step of noisy gradient descent for one replicate: two products with a vector, no graph of operations."""
    rows, labels = (torch.tensor(a, dtype=getattr(torch, dtype)) for a in (X, Y))
    w = torch.zeros(rows.shape[1], dtype=rows.dtype)

    def step() -> None:
        gradient = (-labels * torch.sigmoid(-labels * (rows @ w))) @ rows / rows.shape[0] + L2 * w
        w.sub_(ETA * (gradient + 0.01 * torch.randn(w.shape, dtype=w.dtype)))

    return step


def opacus_step(dtype: str, rows: int, mode: str) -> Callable[[], None]:
    """Return one full-batch step of Opacus, the batch handed over in slices of `rows` records.

    Tensors are sliced by hand, without a data loader, and the noisy step is taken after the last slice.
    """
    features = torch.tensor(X, dtype=getattr(torch, dtype))
    labels = torch.tensor((Y[:, None] + 1) / 2, dtype=features.dtype)
    n, d = features.shape
    model = wrap_model(torch.nn.Linear(d, 1, bias=False, dtype=features.dtype), grad_sample_mode=mode)
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=ETA, weight_decay=L2),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=n,
    )
    loss = torch.nn.BCEWithLogitsLoss()

    def step() -> None:
        for start in range(0, n, rows):
            optimizer.signal_skip_step(do_skip=start + rows < n)
            loss(model(features[start : start + rows]), labels[start : start + rows]).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def diffprivlib_fit() -> Callable[[], object]:
    """Return a whole private fit by objective perturbation; the library computes in double precision only."""
    model = LogisticRegression(epsilon=1.0, data_norm=1.0, C=1.0 / (L2 * X.shape[0]), fit_intercept=False)
    return lambda: model.fit(X, Y)


MAKERS = {"torch": torch_step, "opacus": opacus_step, "diffprivlib": diffprivlib_fit}


@functools.cache
def action(request: str) -> Callable[[], object]:
    """Return what a request asks for; models and tensors are made once."""
    wish = json.loads(request)
    return MAKERS[wish.pop("peer")](**wish)


def main() -> None:
    """Answer requests until there are no more."""
    print(json.dumps({name: version(name) for name in ("torch", "opacus", "diffprivlib")}), flush=True)
    for line in sys.stdin:
        run = action(line)
        started = time.process_time()
        run()
        print(json.dumps({"seconds": time.process_time() - started}), flush=True)


if __name__ == "__main__":
    main()
