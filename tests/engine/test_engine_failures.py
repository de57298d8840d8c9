"""What goes wrong in a step ends those whom it concerns, once each, and the engine lives on."""

import numpy as np
import pytest
from engine_harness import Harness, request
from scripted_device import ScriptedDevice, counting

from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.errors import DeviceError, OutOfMemory
from hipfire.wire.messages import Finished, Sampling


@pytest.mark.parametrize(
    ("error", "code"),
    [(DeviceError("broken"), "device_error"), (OutOfMemory("full"), "out_of_memory"), (MemoryError(), "out_of_memory")],
)
def test_a_device_error_fails_what_is_active_and_the_engine_lives_on(error, code):
    device = ScriptedDevice(counting)
    harness = Harness(device, max_concurrent=2)
    harness.turn(request("a", 1), request("b", 1), request("waits", 1))

    def fail_once(step, cancel):
        device.hook = lambda step, cancel: None
        raise error

    device.hook = fail_once
    harness.settle()
    assert harness.end("a").code == harness.end("b").code == code
    assert harness.tokens("waits") == [2, 3, 4, 5]
    assert isinstance(harness.end("waits"), Finished)


def test_memory_that_runs_out_while_tokens_are_chosen_ends_nobody_twice():
    class NoMemory(NumpyRowMath):
        def weights(self, scores, highest, temperature):
            raise MemoryError

    device = ScriptedDevice(counting)
    device.row_math = NoMemory()
    harness = Harness(device, max_concurrent=2)
    drawn = Sampling(temperature=1.0, top_k=2)
    harness.settle(request("a", 3, max_tokens=1), request("b", 4, max_tokens=9, sampling=drawn))
    assert harness.end("a").reason == "length"
    assert harness.end("b").code == "out_of_memory"


def test_broken_logits_fail_their_own_sequence_only():
    def script(prefix):
        logits = counting(prefix)
        if prefix[0] == 9 and len(prefix) == 3:
            logits[7] = np.nan
        return logits

    harness = Harness(ScriptedDevice(script), max_concurrent=2)
    harness.settle(request("good", 1), request("bad", 9))
    assert harness.end("bad").code == "device_error"
    assert harness.tokens("bad") == [10, 11]
    assert harness.tokens("good") == [2, 3, 4, 5]
