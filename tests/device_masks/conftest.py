"""Triton kernels run in its interpreter here: it must be chosen before a kernel is defined."""

import os

os.environ["TRITON_INTERPRET"] = "1"
