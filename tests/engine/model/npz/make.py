#!/usr/bin/env python3
"""Writes stored.npz and deflated.npz beside this script, with NumPy: the archives of test_npz.cpp."""
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
ARRAYS = {
    "x.o.affine.weight": np.arange(6, dtype="<f4").reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(24, dtype="<i4").reshape(2, 3, 4)),
    "big": np.arange(6, dtype=">f8").reshape(3, 2),
    "both": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "flags": np.array([True, False, True]),
    "half": np.array([0.5, -2], dtype="<f2"),
    "one": np.array(7, dtype="<i8"),
    "none": np.zeros((0, 3), dtype="<u4"),
}

np.savez(HERE / "stored.npz", **ARRAYS)
np.savez_compressed(HERE / "deflated.npz", **ARRAYS)
