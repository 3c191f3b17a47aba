"""Processes in the background: the ports that they get, and their end."""

import signal
import socket
import subprocess
import sys
import threading

import pytest

from trilithon.engines.spark import background_process
from trilithon.engines.spark.background_process import HOST, free_ports, kill

OUTGOING = 32_768  # the first port that Linux gives to an outgoing connection


def test_free_ports_differ_and_are_none_that_an_outgoing_connection_gets() -> None:
    ports = free_ports(0, 0, 0)
    assert len(set(ports)) == 3
    assert all(port < OUTGOING for port in ports)


def test_a_port_that_a_process_holds_for_a_moment_is_waited_for() -> None:
    [port] = free_ports(0)
    with socket.create_server((HOST, port)) as server:
        threading.Timer(0.3, server.close).start()
        assert free_ports(port) == [port]


def test_instead_of_a_port_that_stays_taken_another_one_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background_process, "PORT_WAIT_S", 0.1)
    [port] = free_ports(0)
    with socket.create_server((HOST, port)):
        [other] = free_ports(port)
    assert other != port


def test_a_process_that_ignores_requests_to_end_is_killed_and_another_is_left_alone() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code, "a-mark"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert not kill(process.pid, "another-mark")
        assert process.poll() is None
        assert kill(process.pid, "a-mark")
        assert process.wait() == -signal.SIGKILL
    assert not kill(process.pid, "a-mark")
