"""Files of arrays: what was saved comes back, and damaged data never does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from dotllm.vocabulary.files import DamagedFile, read_arrays, write_arrays

ARRAYS = {"a": np.arange(1000, dtype=np.int32).reshape(10, 100), "b": np.array([], np.uint8), "c": np.array([-1])}

some_arrays = st.dictionaries(
    st.text(max_size=8),
    st.sampled_from([np.uint8, np.int32, np.int64]).flatmap(
        lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
    max_size=4,
)


@given(some_arrays)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, np.ndarray]) -> None:
    path = tmp_path_factory.getbasetemp() / "arrays"
    write_arrays(path, "kind", arrays)
    found = read_arrays(path, "kind")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.array_equal(found[name], array)
        assert found[name].flags.c_contiguous and found[name].flags.aligned and found[name].flags.writeable


def test_writing_to_a_loaded_array_does_not_reach_the_file(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", "kind", ARRAYS)
    read_arrays(tmp_path / "x", "kind")["a"][:] = 7
    assert np.array_equal(read_arrays(tmp_path / "x", "kind")["a"], ARRAYS["a"])


def test_replacing_a_file_leaves_loaded_arrays_alone(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", "kind", ARRAYS)
    before = read_arrays(tmp_path / "x", "kind")
    write_arrays(tmp_path / "x", "kind", {"a": np.zeros(3, np.int64)})
    assert np.array_equal(before["a"], ARRAYS["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["x"], "no temporary file is left"


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_arrays(path, "kind", ARRAYS)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [good[:n] for n in {0, 1, 8, 40, 47, 48, 100, len(good) - 1}]
    for at in [*range(60), *rng.integers(0, len(good), 100).tolist()]:
        damaged.append(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
    damaged += [good + b"x", bytes(len(good))]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(DamagedFile):
            read_arrays(path, "kind")
    path.write_bytes(good)
    with pytest.raises(DamagedFile, match="kind"):
        read_arrays(path, "another kind")
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "y", "kind")


def test_other_dtypes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="float64"):
        write_arrays(tmp_path / "x", "kind", {"a": np.array([1.5])})
    assert not list(tmp_path.iterdir())
