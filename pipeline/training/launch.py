"""The processes of a training: started by torchrun's agent, on this machine or on several.

Several machines (docs/cluster.md): the agents find each other at RENDEZVOUS, which is open on the first machine. Torch
numbers machines in the order of their addresses, so the other machines have addresses that sort after all real ones:
then process 0, which writes the files, is on the first machine.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from pipeline.workflow.stage import SECONDS_TO_SAVE

LAUNCHER = "TRANSFORMER_LAUNCHER"  # environment variable: the number of the process that started this one
# Environment variable: the file into which a process writes a user's mistake; if it exists, nothing is restarted.
REPORT = "TRANSFORMER_REPORT"
IS_FIRST = "TRANSFORMER_FIRST_MACHINE"  # environment variable: 1 for processes of the first machine, else 0
LOST = 75  # exit status of a process that lost the connection to another one
STOPPED = {status for number in (signal.SIGTERM, signal.SIGINT) for status in (-number, 128 + number)}
RESTARTS = 3  # how often all processes start again after a failure, with several machines
PORT = 29400  # torchrun's
NO_LIMIT = 10**8  # seconds
SORTS_LAST = "~"


@dataclass(frozen=True)
class Machines:
    """The machines that train together: from `least` to `most` of them.

    host, port: where the first machine listens. is_first: whether this is the first machine.
    """

    least: int
    most: int
    host: str
    port: int
    is_first: bool

    @classmethod
    def read_environment(cls) -> Machines | None:
        """The machines that NODES, RENDEZVOUS and NODE_RANK name; None for this machine alone."""
        nodes, endpoint = os.environ.get("NODES") or "1", os.environ.get("RENDEZVOUS")
        numbers = re.fullmatch(r"([0-9]+)(?::([0-9]+))?", nodes)
        least, most = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, 0)
        if not 0 < least <= most:
            raise ValueError(
                f"NODES={nodes!r} is not a number of machines. Set NODES to 2, to 1:4 (from 1 to 4), or unset it."
            )
        if most == 1:
            return None
        if not endpoint:
            raise ValueError(
                f"NODES={nodes} needs RENDEZVOUS=HOST:PORT, an address of the first machine. Set it on all machines."
            )
        try:
            host, port = parse_rendezvous_endpoint(endpoint, PORT)
        except ValueError:
            raise ValueError(f"RENDEZVOUS={endpoint} must be HOST:PORT, with a port from 1 to 65535.") from None
        rank = os.environ.get("NODE_RANK")
        return cls(least, most, host, port, rank == "0" if rank else is_own(host))

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
            "min_nodes": self.least,
            "max_nodes": self.most,
            "rdzv_endpoint": f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}",
            "rdzv_configs": {"is_host": self.is_first, "join_timeout": NO_LIMIT},
            "local_addr": self.host if self.is_first else f"{SORTS_LAST}{socket.gethostname()}",
            "max_restarts": RESTARTS,
        }


def is_own(host: str) -> bool:
    """Whether a name or an address is of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def use_network_to(host: str) -> None:
    """Make gloo and nccl use the network in which this machine reaches a host, unless the user chose another one.

    Gloo would take the network of the machine's own name, which is often the loopback.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
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
    stopped. With several machines, all start again, up to RESTARTS times, except after a mistake of the user. The last
    failure is printed in one line. Raises ValueError if the first machine cannot listen at its address.
    """
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # the line that is printed is enough
    settings = machines.settings() if machines else {"min_nodes": 1, "max_nodes": 1, "max_restarts": 0}
    with TemporaryDirectory() as folder:  # of the files in which processes write their errors
        report = Path(folder) / "report"
        set_environment(threads, machines, report)
        config = LaunchConfig(
            nproc_per_node=count,
            rdzv_backend="c10d",
            run_id=module,
            shutdown_timeout=SECONDS_TO_SAVE,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            **{"rdzv_endpoint": "localhost:0", **settings},
        )
        try:
            elastic_launch(config, sys.executable)("-m", module, *sys.argv[1:])
            return 0
        except SignalException as stopped:
            if report.exists():
                print(f"error: {report.read_text(encoding='utf-8')}", file=sys.stderr)
            return 1 if report.exists() else 128 + stopped.sigval
        except ChildFailedError as error:
            return print_failure(error.failures)
        except (RendezvousError, DistError) as error:
            return end_without_others(error, machines)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)  # the handlers of torch's agent would raise exceptions


def set_environment(threads: int, machines: Machines | None, report: Path) -> None:
    """Set the environment of the processes that `launch` starts. report: see REPORT."""
    os.environ |= {"OMP_NUM_THREADS": str(threads), LAUNCHER: str(os.getpid()), IS_FIRST: "1"}
    if machines:
        os.environ |= {IS_FIRST: str(int(machines.is_first)), REPORT: str(report)}
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # a restart needs a store without old addresses
        use_network_to(machines.host)


def end_without_others(error: Exception, machines: Machines | None) -> int:
    """Print that the other machines cannot be reached, and return the exit status. error: of torch's agent.

    Raises ValueError if the first machine cannot listen.
    """
    if machines and machines.is_first and isinstance(error, RendezvousConnectionError):
        raise ValueError(
            f"RENDEZVOUS={os.environ['RENDEZVOUS']} cannot be used ({error.__cause__ or error}). Set it to an "
            "address of the first machine and a free port."
        ) from None
    print("error: The training ended on another machine, or the connection to it was lost.", file=sys.stderr)
    return LOST


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
