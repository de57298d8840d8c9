"""Decode steps as HIP graphs: one launch a step, where the runtime's graphs can be had and give the same bits.

A shape's second step captures its graph, and runs it and the launches one by one: what differs is not used. Later
steps of the shape launch the graph. Steps that hold prompts are never captured: they are long, and of many shapes.
Knows no kernels and no addresses; whoever uses it says what is enqueued.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.hip_lowering import StepShape
from hipfire.hip.graph import Graph, graph_fault
from hipfire.hip.library import HipError
from hipfire.hip.runtime import Runtime

log = logging.getLogger("hipfire.engine")

MAX_GRAPHS = 32
"""Of several numbers of sequences and several lengths. Each has the arguments of a step's kernels on the device."""

Enqueue = Callable[[], None]
Finish = Callable[[], Sequence[NDArray[np.generic]]]


class StepGraphs:
    """The graphs of one loaded Program, on an `arch`."""

    def __init__(self, runtime: Runtime, arch: str, *, is_wanted: bool) -> None:
        self._runtime = runtime
        self._graphs: OrderedDict[StepShape, Graph | None] = OrderedDict()
        """Least recently used first. None: seen once."""
        self._proven: set[StepShape] = set()
        self._is_on = is_wanted
        if is_wanted and (fault := graph_fault(runtime.library, arch)):
            self._give_up(fault)

    def run(self, shape: StepShape, enqueue: Enqueue, finish: Finish) -> None:
        """Run a step: `enqueue` puts its kernels into the stream, `finish` waits for what they leave, and tells.

        A step may be run twice, to the same effect as once. Raises HipError.
        """
        graph = self._graph_of(shape, enqueue) if self._is_on and shape.is_decode else None
        if graph is None:
            enqueue()
        elif shape in self._proven:
            graph.launch()
        else:
            self._prove(shape, graph, enqueue, finish)
            return
        finish()

    def close(self) -> None:
        """Give all of them back. Idempotent."""
        while self._graphs:
            self._forget_one()

    def _graph_of(self, shape: StepShape, enqueue: Enqueue) -> Graph | None:
        is_new = shape not in self._graphs
        graph = self._graphs.pop(shape, None)
        if len(self._graphs) == MAX_GRAPHS:
            # Nothing is in the stream: every step was waited for.
            self._forget_one()
        if graph is None and not is_new:
            try:
                graph = Graph(self._runtime, enqueue)
            except HipError as error:
                self._give_up(error.message)
                return None
        self._graphs[shape] = graph
        return graph

    def _prove(self, shape: StepShape, graph: Graph, enqueue: Enqueue, finish: Finish) -> None:
        """The graph first: after the launches it could read what they fetched. What they leave is what counts."""
        found = None
        try:
            graph.launch()
        except HipError as error:
            self._give_up(error.message)
        else:
            found = [part.tobytes() for part in finish()]
        enqueue()
        expected = [part.tobytes() for part in finish()]
        if found is None or not expected:
            return
        if found == expected:
            self._proven.add(shape)
        else:
            self._give_up("they compute something else than the launches one by one", logging.WARNING)

    def _forget_one(self) -> None:
        _, graph = self._graphs.popitem(last=False)
        if graph is not None:
            graph.close()

    def _give_up(self, reason: str, level: int = logging.INFO) -> None:
        log.log(level, "HIP graphs are not used: %s", reason)
        self._is_on = False
        self.close()
