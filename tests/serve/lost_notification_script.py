"""Run by test_answers.py in a fork of the zygote: a reader of vLLM's shared memory whose notification is lost.

python lost_notification_script.py     Prints the seconds until the reader has the message.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any


def main() -> None:
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    writer: Any = MessageQueue(1, 1)
    reader: Any = MessageQueue.create_from_handle(writer.export_handle(), 0)
    ready = threading.Thread(target=writer.wait_until_ready)
    ready.start()
    reader.wait_until_ready()
    ready.join()
    reader._spin_condition.last_read = 0.0  # it waits asleep
    writer._spin_condition.notify = lambda: None
    later = threading.Timer(0.3, writer.enqueue, ["a step"])
    later.start()
    began = time.monotonic()
    assert reader.dequeue() == "a step"
    print("RESULT " + json.dumps(time.monotonic() - began))


if __name__ == "__main__":
    main()
