import os
import signal
import threading

import pytest

from wng.runs.interrupt import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_a_request(number, capfd) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        os.kill(os.getpid(), signal.SIGTERM)  # impatience, but not Ctrl-C
        assert stop.requested
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err.count("saving after this iteration") == 1


def test_second_ctrl_c_stops_at_once(capfd) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_it_does_nothing() -> None:
    seen = []

    def work() -> None:
        with stop_on_signals() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
