"""The layout of a machine's arena: one int32 array that kernels take as their only mutable argument.

It is one array instead of thirty because passing arrays to a kernel costs more than a warm mask, because growing is
then one copy without stale pointers, and because saving a machine is saving one array. All references inside are
indices relative to their region, so regions may move when the arena grows; every access is an ordinary bounds-checkable
array access (``NUMBA_BOUNDSCHECK=1`` checks them all).

The first HEADER ints are slots, listed below. Then come the arrays that do not grow: the NFA's, scratch for each node,
the ways, the walk's scratch. Then come the regions in any order, each with a capacity and a used count in its own
units, then free space (see `arena`).
"""

from __future__ import annotations

import numba as nb

from dotllm.automata.kinds import NfaArray

MEM = nb.int32[::1]
"""The type of an arena."""
MAGIC = 0x646F7435  # "dot5"; changes with the layout

# --- header slots -----------------------------------------------------------------------------------------------------
H_MAGIC = 0
H_END = 1  # ints in use, from the front
H_NODES = 2
H_CLASSES = 3
H_START = 4  # NFA start node
H_STAMP = 5  # scratch: current stamp of the closure
H_TOUCHED = 6  # scratch: nodes touched by the closure in progress
H_WORK = 7  # scratch: returns and loop ends still to be carried out
H_PENDING = 8  # scratch: pushes still to be carried out (a heap)
H_BUFFER = 9  # scratch: top of the list buffer
H_FUEL = 10  # closure steps left before the budget error
H_MAX_TOKEN_BYTES = 11  # bytes of the longest token: counters further than this from a limit are equivalent
H_CONSULTED = 12  # mask walk: the number of symbols of the real stack that it has examined
H_LOCAL = 13  # mask walk: next free cell of its own stacks
H_OUT = 14  # second return value of functions that have one
H_LIMIT = 15  # maximum size of the arena, in ints
H_DEPTH = 16  # size of the walk's per-depth scratch: bytes of the longest token + 2
H_FIRST = 17  # where the NFA's arrays end
H_LEFT = 18  # mask walk: tokens left, including the next one (see `plans`); 0: no limit
H_MOST = 19  # mask walk with a limit: the largest number of tokens that must follow any next token

# NFA arrays: offsets
(
    H_KIND, H_A, H_B, H_RANK, H_CHARSET, H_EDGE_START, H_EDGE_BYTES, H_EDGE_TARGET, H_CLOSURE_START, H_CLOSURE,
    H_LOOP_BODY, H_LOOP_AFTER, H_LOOP_MIN, H_LOOP_MAX, H_CLASS_OF, H_CLASS_BYTE,
) = (20 + array for array in NfaArray)  # fmt: skip
# per-node scratch: offsets (constant sizes)
H_SEEN, H_ACC, H_TOUCH_LIST, H_WORK_LIST, H_QUEUED, H_HEAP = 36, 37, 38, 39, 40, 41
# per node: the shortest ways, once H_HAS_WAYS is 1 (see `ways.find_ways`)
H_WAY_COST, H_WAY_CHOICE, H_WAY_BYTE, H_WAY_AFTER, H_WAY_BEGIN = 42, 43, 44, 45, 46
WAY_ARRAYS = 5
# mask walk scratch, by token depth
H_WALK_STATE, H_WALK_ENV = 47, 48
WAITING = 4  # ints by depth, after those of H_WALK_ENV: a node whose subtree is walked again (see `walk.walk`)
H_MOST_BYTES = 49  # as H_MOST, in bytes
H_HAS_WAYS = 50

# --- regions: (offset, capacity, used) at R + 3 * region --------------------------------------------------------------
R = 51
(
    POOL, STATE, DELTA, FRAMESET, SYMBOL, FRAME, LISTS, TRIPLES, STACK, CONFIG, MEMO, BUFFER, LOCAL,
    PLACES, TAILS,  # nearly empty until a guide has a limit (see `plans`); TAILS also has `exits`
) = range(15)  # fmt: skip
REGIONS = 15
# Their slots by name: AT_… where one starts, CAP_… its capacity, USED_… how much of it is used.
(
    AT_POOL, AT_STATE, AT_DELTA, AT_FRAMESET, AT_SYMBOL, AT_FRAME, AT_LISTS,
    AT_TRIPLES, AT_STACK, AT_CONFIG, AT_MEMO, AT_BUFFER, AT_LOCAL, AT_PLACES, AT_TAILS,
) = range(R, R + 3 * REGIONS, 3)  # fmt: skip
(
    CAP_POOL, CAP_STATE, CAP_DELTA, CAP_FRAMESET, CAP_SYMBOL, CAP_FRAME, CAP_LISTS,
    CAP_TRIPLES, CAP_STACK, CAP_CONFIG, CAP_MEMO, CAP_BUFFER, CAP_LOCAL, CAP_PLACES, CAP_TAILS,
) = range(R + 1, R + 3 * REGIONS, 3)  # fmt: skip
(
    USED_POOL, USED_STATE, USED_DELTA, USED_FRAMESET, USED_SYMBOL, USED_FRAME, USED_LISTS,
    USED_TRIPLES, USED_STACK, USED_CONFIG, USED_MEMO, USED_BUFFER, USED_LOCAL, USED_PLACES, USED_TAILS,
) = range(R + 2, R + 3 * REGIONS, 3)  # fmt: skip
WIDTH = (1, 8, 1, 2, 3, 3, 2, 5, 3, 3, 1, 1, 6, 5, 3)  # ints per unit; DELTA is counted in ints
H_AFTER, H_AFTER_ENV = R + 3 * REGIONS, R + 3 * REGIONS + 1  # mask walk: what follows white space (see `walk`)
HEADER = 100

# STATE: a list of (node, frame set) in POOL, and the facts about it
S_OFFSET, S_LENGTH, S_CORE, S_PUSH, S_FLAGS, S_HOLES, S_MEMO = range(7)
S_WIDTH = 8  # a power of two, so a state never lies across two cache lines
# flags of a state
COMPLEX = 1  # reaching it takes more than an assignment: PENDING, or something to push
PENDING = 2  # something returned through a hole
ACCEPTS = 4  # the text may end here
HAS_TOKENS = 8  # some item waits for a token by id
HAS_CHARSET = 16  # some item loops over a large character set

# labels of frames; a label >= 0 is the node to return to, plus the number of nodes if the frame is optional (`exits`)
HOLE, ROOT, LOOP = -1, -2, -3  # LOOP - l: the counter of loop l

# what a key in TRIPLES means
T_FRAME, T_REDUCE, T_SUBST, T_COMPOSE, T_STACK, T_CONFIG, T_MEMO, T_CANON, T_CANON_FRAMES, T_UNION = range(10)
T_CELL, T_TAIL, T_BELOW, T_PLACE, T_FINISH, T_RISE = range(10, 16)  # of `plans`; not saved
T_EXITS, T_HOLES, T_PART = 16, 17, 18  # not saved either

# kinds of interned lists
L_STATE, L_FRAMESET, L_SYMBOL = 0, 1, 2

DEAD = 0  # state 0: nothing can follow
UNKNOWN = -1

# counters in canonical symbols
FAR_INSIDE = -1  # may leave and may continue, and no token can change that
FAR_BELOW = -2  # must continue, and no token can change that

BASE_CELLS = 256  # handles below this are cells of the real stack, by depth (see `walk`)

# configurations with fixed numbers
FINISHED, INITIAL = 0, 1

# --- results below zero -----------------------------------------------------------------------------------------------
FULL = -16  # FULL - region: grow that region and call again (everything done so far stays valid)
OUT_OF_FUEL = -2
FAULT = -4  # an invariant does not hold: a bug
TOO_FAR = -5  # no text is short enough for a plan

NEEDS_WORDS = -1024  # NEEDS_WORDS - number: make the words that exit this character set, and call again

MEMO_UNKNOWN, MEMO_DEEPER = -1, -2

# --- columns of the table of character sets (see index.token_space) ---------------------------------------------------
(
    K_EXITS, K_EXITS_END, K_WORDS, K_WORDS_END, K_COUNTS, K_MAX_COUNT, K_MAX_CHARS, K_LONG, K_LONG_END, K_REP,
    K_REP_END,
    K_WIDE,  # whether all characters beyond ASCII are members
) = range(12)  # fmt: skip
WORDS_UNKNOWN, WORDS_NOWHERE = -1, -2  # K_WORDS_END of a set whose exit words have not been needed, or do not fit
K_REP_BYTES = 12  # up to 4 bytes: one character of the set
K_FIRST_BYTES = 16  # 8 ints: the set of first bytes
K_WIDTH = 24
K_ROWS = 17  # rows per set: [0] all tokens inside, [k] those of at most k characters
