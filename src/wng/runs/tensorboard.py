"""The event files that TensorBoard reads."""

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter


class EventFile:
    """A new event file in `folder`.

    Note:
      tensorboardX's SummaryWriter hands events to a thread through a bounded queue: on a full disk
      the thread dies and training hangs. Its RecordWriter is used directly instead.
    """

    def __init__(self, folder: Path):
        folder.mkdir(exist_ok=True)
        # A unique name even for two sessions within a second: an existing file is overwritten.
        self._writer = RecordWriter(str(folder / f"events.out.tfevents.{time.time_ns()}"))
        self.flush, self.close = self._writer.flush, self._writer.close

    def forget(self, start: int) -> None:
        """Tell TensorBoard to forget what an earlier session wrote from step `start` on."""
        self._add(Event(file_version="brain.Event:2"))
        self._add(Event(step=start, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add finite numbers by name."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._add(Event(step=step, summary=Summary(value=values)))

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
