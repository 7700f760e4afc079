"""Strongly connected components of a graph, iteratively.

R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1(2), 1972.
"""

from __future__ import annotations

from collections.abc import Sequence


def strongly_connected(graph: Sequence[Sequence[int]]) -> list[int]:
    """The component number of every node; ``graph[n]`` lists the successors of ``n``.

    Numbers are below ``len(graph)``; a component has a smaller number than the components that lead to it.
    """
    size = len(graph)
    order = [0] * size  # when a node was first seen, from 1 on
    low = [0] * size  # the earliest node seen that is on the stack and can be reached
    component = [-1] * size
    place = [0] * size
    stack: list[int] = []
    seen = components = 0
    for root in range(size):
        if order[root]:
            continue
        path = [root]
        while path:  # bounded: by the edges, each followed once
            node = path[-1]
            if not order[node]:
                seen += 1
                order[node] = low[node] = seen
                stack.append(node)
            successors = graph[node]
            while place[node] < len(successors):  # bounded: by the edges of a node
                child = successors[place[node]]
                if not order[child]:
                    path.append(child)
                    break
                place[node] += 1
                if component[child] < 0:
                    low[node] = min(low[node], low[child])
            else:
                path.pop()
                if low[node] == order[node]:
                    while True:  # bounded: by the nodes, each taken once
                        member = stack.pop()
                        component[member] = components
                        if member == node:
                            break
                    components += 1
    return component
