"""What is uploaded together arrives apart, and runs are written where they belong, in pieces if they are long."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from dotllm.vllm_plugin.gpu_masks.kernels import write_runs  # noqa: E402
from dotllm.vllm_plugin.gpu_masks.upload import LONGEST, RUN, runs_of, upload  # noqa: E402

CPU = torch.device("cpu")


def test_views_are_the_arrays() -> None:
    arrays = [np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros(0, np.int32), np.array([7], np.int32)]
    stage, views = upload(CPU, arrays)
    assert len(stage) == 7
    for array, view in zip(arrays, views, strict=True):
        assert view.numpy().tolist() == array.ravel().tolist()


@pytest.mark.parametrize("seed", range(4))
def test_runs(seed: int) -> None:
    generator = np.random.default_rng(seed)
    targets = [np.full(20_000, -1, np.int32), np.full(9_000, -1, np.int32)]
    expected = [target.copy() for target in targets]
    pieces, runs, source = [], [], 0
    for number, target in enumerate(expected):
        count = np.array([1, LONGEST, LONGEST + 1, 3 * LONGEST, *generator.integers(1, 300, 5)], np.int32)
        start = (np.cumsum(count) - count + 3 * np.arange(len(count))).astype(np.int32)  # with gaps
        data = generator.integers(0, 1 << 30, int(count.sum())).astype(np.int32)
        for first, size, end in zip(start, count, np.cumsum(count), strict=True):
            target[first : first + size] = data[end - size : end]
        runs.append(runs_of(number, start, count, source))
        pieces.append(data)
        source += len(data)
    assert all(int(r[:, 3].max()) == LONGEST and r.shape[1] == RUN for r in runs)
    stage, views = upload(CPU, [*pieces, np.concatenate(runs)])
    first, second = map(torch.from_numpy, targets)
    write_runs(views[-1], stage, first, second)
    assert np.array_equal(first.numpy(), expected[0]) and np.array_equal(second.numpy(), expected[1])


def test_no_runs() -> None:
    nothing = np.zeros(0, np.int32)
    runs = runs_of(0, nothing, nothing, 0)
    assert runs.shape == (0, RUN)
    stage, views = upload(CPU, [nothing, runs])
    write_runs(views[1], stage, torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
