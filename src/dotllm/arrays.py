"""Types of the arrays that modules pass to each other; all are C-contiguous unless their use says otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]
