"""Progress of runs: bars on a terminal, an occasional line elsewhere."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

LINE_SECONDS, LINE_FRACTION = 10.0, 0.1  # without a terminal, a line when either has passed


class TrainingProgress:
    """Progress of one or several runs. A context manager.

    Args:
      console: where to print; by default standard output.
    """

    def __init__(self, console: Console | None = None):
        self.console = console or Console()
        self._live = self.console.is_interactive
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, tuple[float, float]] = {}  # time and steps of the last line
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=_fixed(max_width=28)),
            BarColumn(bar_width=12 if self.console.width >= 100 else 6),
            _Steps(table_column=_fixed(justify="right")),
            _Rate(table_column=_fixed(justify="right")),
            _TimeLeft(table_column=_fixed(justify="right")),
            # The rest of the line; the last fields are cut on a narrow terminal.
            TextColumn("{task.fields[text]}", markup=False, table_column=_fixed(ratio=1)),
            console=self.console,
            expand=True,
            disable=not self._live,
            refresh_per_second=4,
            speed_estimate_period=600,  # iterations may take minutes
        )

    def add(self, name: str, total: int, done: int = 0) -> None:
        """Show the run `name` of `total` steps, of which `done` were done in earlier sessions."""
        self._tasks[name] = self._progress.add_task(name, total=total, completed=done, text="")
        self._last_line[name] = (time.monotonic(), done)

    def say(self, name: str, text: str) -> None:
        """What the run `name` is doing while it has no numbers to show, such as "compiling"."""
        if self._progress.tasks[self._tasks[name]].fields["text"] != text:
            self._progress.update(self._tasks[name], text=text)
            if not self._live:
                self.console.print(f"{name}  {text}", markup=False, highlight=False)

    def update(self, name: str, done: int, fields: Mapping[str, float]) -> None:
        """The run `name` has done `done` steps; `fields` are shown in their order."""
        text = "  ".join(f"{key} {_short(value)}" for key, value in fields.items())
        self._progress.update(self._tasks[name], completed=done, text=text)
        if not self._live:
            self._print_line(name, done)

    def __enter__(self) -> "TrainingProgress":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def _print_line(self, name: str, done: int) -> None:
        task, now = self._progress.tasks[self._tasks[name]], time.monotonic()
        last_time, last_done = self._last_line[name]
        total = task.total or 1
        due = now - last_time >= LINE_SECONDS or done - last_done >= LINE_FRACTION * total
        if due or done >= total > last_done:
            self._last_line[name] = (now, done)
            columns = [column.render(task) for column in (_Steps(), _Rate(), _TimeLeft())]
            line = f"{name}  {'  '.join(map(str, columns))}  {task.fields['text']}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Steps(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{_count(task.completed)}/{_count(task.total or 0)}", "progress.download")


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{_count(speed)}/s" if speed else "–/s", "progress.data.speed")


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        seconds = task.time_remaining
        if seconds is None:
            return Text("-:--:--", "progress.remaining")
        minutes, seconds = divmod(int(seconds), 60)
        return Text(f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}", "progress.remaining")


def _fixed(**settings: object) -> Column:
    return Column(no_wrap=True, overflow="ellipsis", **settings)  # type: ignore[arg-type]


def _count(number: float) -> str:
    """A number in about four characters: 950, 20.5k, 1.25M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
