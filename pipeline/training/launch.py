"""The processes of a training: started by torchrun's launcher, on this machine or on several (docs/cluster.md).

Several machines: NODES is their number and NODE_RANK that of this one. They meet at RENDEZVOUS, where machine 0
listens. It has process 0, which writes the files.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import psutil
from torch.distributed import DistError, DistNetworkError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from pipeline.workflow.stage import SECONDS_TO_SAVE
from transformer.files import Mistake

LAUNCHER = "TRANSFORMER_LAUNCHER"  # environment variable: the number of the process that started this one
LOST = 75  # exit status of a process that lost the connection to another one
STOPPED = {status for number in (signal.SIGTERM, signal.SIGINT) for status in (-number, 128 + number)}
PORT = 29400  # torchrun's
NO_LIMIT = 10**8  # seconds


@dataclass(frozen=True)
class Machines:
    """The machines that train together. host, port: where machine 0 listens. rank: the number of this machine."""

    count: int
    rank: int
    host: str
    port: int

    @property
    def is_first(self) -> bool:
        """Whether this is machine 0."""
        return self.rank == 0

    @classmethod
    def read_environment(cls) -> Machines | None:
        """The machines that NODES, NODE_RANK and RENDEZVOUS name; None for this machine alone."""
        nodes, rank, endpoint = (os.environ.get(name) or "" for name in ("NODES", "NODE_RANK", "RENDEZVOUS"))
        if nodes in ("", "1"):
            return None
        if not (nodes.isascii() and nodes.isdecimal() and int(nodes)):
            raise Mistake(f"NODES={nodes!r} is not a number of machines. Set NODES to 2 or more, or unset it.")
        if not (rank.isascii() and rank.isdecimal() and int(rank) < int(nodes)):
            raise Mistake(
                f"NODES={nodes} needs the number of this machine, NODE_RANK={rank!r} is none. Set it to 0 on the first "
                f"machine, up to {int(nodes) - 1} on the others."
            )
        if not endpoint:
            raise Mistake(
                f"NODES={nodes} needs RENDEZVOUS=HOST:PORT, an address of the first machine. Set it on all machines."
            )
        try:
            host, port = parse_rendezvous_endpoint(endpoint, PORT)
        except ValueError:
            raise Mistake(f"RENDEZVOUS={endpoint} must be HOST:PORT, with a port from 1 to 65535.") from None
        return cls(int(nodes), int(rank), host, port)

    def wait_for_first(self) -> None:
        """Wait until the first machine listens."""
        print(f"Waiting for the stage train at {self.host}:{self.port}. Ctrl-C ends the wait.", flush=True)
        while True:
            try:
                socket.create_connection((self.host, self.port), timeout=5).close()
                return
            except OSError:  # not reached, or its name is not known yet
                time.sleep(1)

    def settings(self) -> dict:
        """The fields of torch's LaunchConfig that are different with several machines."""
        return {
            "min_nodes": self.count,
            "max_nodes": self.count,
            "rdzv_backend": "static",
            "rdzv_endpoint": f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}",
            "rdzv_configs": {"rank": self.rank, "timeout": NO_LIMIT},
        }


def use_network_to(host: str) -> None:
    """Make gloo and nccl use the network in which this machine reaches a host, unless the user chose another one.

    Gloo would take the network of the machine's own name, which is often the loopback.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
    except socket.gaierror as error:
        raise Mistake(f"RENDEZVOUS={host}: {error.strerror}. Set it to an address of the first machine.") from None
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # nothing is sent
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if own in (entry.address.partition("%")[0] for entry in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")


def launch(module: str, count: int, threads: int, machines: Machines | None = None) -> int:
    """Run a module in `count` processes of `threads` threads each, and return the exit status.

    The processes get the options of this process. machines: those that take part; None: this one alone. SIGTERM and
    SIGINT are passed on to all processes; the status is then 128 + the signal. When a process fails, the others are
    stopped, and the failure is printed in one line. Raises Mistake if the first machine cannot listen there.
    """
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the line that is printed is enough
    os.environ |= {"OMP_NUM_THREADS": str(threads), LAUNCHER: str(os.getpid())}
    alone = {"min_nodes": 1, "max_nodes": 1, "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
    if machines:
        use_network_to(machines.host)
    with TemporaryDirectory() as folder:  # of the files in which processes write their errors
        config = LaunchConfig(
            nproc_per_node=count,
            run_id=module,
            max_restarts=0,
            shutdown_timeout=SECONDS_TO_SAVE,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            **(machines.settings() if machines else alone),
        )
        try:
            elastic_launch(config, sys.executable)("-m", module, *sys.argv[1:])
            return 0
        except SignalException as stopped:
            return 128 + stopped.sigval
        except ChildFailedError as error:
            return print_failure(error.failures)
        except DistError as error:
            if machines and machines.is_first and isinstance(error, DistNetworkError):
                raise Mistake(
                    f"RENDEZVOUS={os.environ['RENDEZVOUS']} cannot be used ({str(error).split(chr(10))[0]}). Set it to "
                    "an address of the first machine and a free port."
                ) from None
            print("error: The training ended on another machine, or the connection to it was lost.", file=sys.stderr)
            return LOST
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)  # the handlers of torch's agent would raise exceptions


def print_failure(failures: dict[int, ProcessFailure]) -> int:
    """Print in one line why processes failed, and return the exit status. failures: rank -> failure.

    The cause is the first failure, except those that follow from another: a lost connection, and the end by a signal.
    """
    rank, cause = min(
        failures.items(), key=lambda item: (item[1].exitcode in STOPPED, item[1].exitcode == LOST, item[1].timestamp)
    )
    if cause.exitcode in STOPPED:
        return cause.exitcode if cause.exitcode > 0 else 128 - cause.exitcode
    if cause.error_file_data.get("reported"):  # see pipeline/workflow/stage.py
        print(f"error: {cause.message}", file=sys.stderr)
        return 1
    end = cause.signal_name() if cause.exitcode < 0 else f"exit status {cause.exitcode}"
    print(
        f"error: Process {rank} ended with {end}. The other processes were stopped. Correct the error above, if there "
        "is one, and run the same command again: a training resumes from its last saved state.",
        file=sys.stderr,
    )
    return 1
