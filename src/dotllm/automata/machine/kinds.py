"""Types of the kernels' arguments, and kinds of nodes as plain ints (see `automata.nfa.NodeKind`)."""

from __future__ import annotations

import numba as nb

MEM = nb.int32[::1]
I = nb.int64

N_PLAIN, N_BYTE, N_CALL, N_ENTER, N_END, N_RETURN, N_TOKENS, N_ACCEPT = range(8)
RETURN_NODE, ACCEPT_NODE = 0, 1
