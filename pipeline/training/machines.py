"""A stage on several machines: the leader's machine opens it, and others take part in it (docs/cluster.md)."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psutil
from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from pipeline.params import Params
from pipeline.training.open_stage import Facts, OpenStage, differences
from transformer.cores import end_with_parent
from transformer.training.hosts import FAILED, LEADER_LOST, Hosts

PORT = 29400  # torchrun's
INVITATION = "TRANSFORMER_INVITATION"  # environment variable: the path of the file with this process's Invitation
STORE_WAIT = timedelta(seconds=30)  # after which a read from the leader's store has failed
CONNECT_WAIT = timedelta(seconds=5)  # the same for connecting to it, which Ctrl-C cannot interrupt
STAGE, NOTICES = "stage", "notices"  # keys in the store
MOST_CHARACTERS = 2000  # of a notice
Launch = Callable[[Hosts], int]


@dataclass(frozen=True)
class Invitation:
    """What `python -m pipeline worker` passes to the stage that it starts on this machine.

    address, port: of the leader's machine. process: the number of the worker's process. stage: what to take part in.
    """

    address: str
    port: int
    process: int
    stage: OpenStage

    @classmethod
    def load(cls, path: Path) -> Invitation:
        """Read an invitation from its file."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**values | {"stage": OpenStage(**values["stage"])})

    def save(self, path: Path) -> None:
        """Write the invitation to a file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def machine_counts(nodes: str) -> tuple[int, int]:
    """The value of NODES to the least and the most machines that take part: 2 to (2, 2), 1:4 to (1, 4)."""
    least, _, most = nodes.partition(":") if ":" in nodes else (nodes, "", nodes)
    fits = all(count.isascii() and count.isdecimal() for count in (least, most))
    if not fits or not 0 < int(least) <= int(most):
        raise ValueError(
            f"NODES={nodes!r} is not a number of machines. Set NODES to 2, to 1:4 (from 1 to 4), or unset it."
        )
    return int(least), int(most)


def own_endpoint(given: str) -> tuple[str, int]:
    """The address and port at which other machines reach this one. given: HOST, HOST:PORT, or "" to find the address.

    The address found is the one by which this machine reaches the network. Raises ValueError for an address that is
    not of this machine.
    """
    if given:
        address, port = endpoint(given, f"RENDEZVOUS={given}")
        check_own(address)
        return address, port
    try:
        return local_address("192.0.2.1"), PORT  # an address of no machine (RFC 5737): nothing is sent
    except OSError:
        raise ValueError(
            "This machine has no network. Set RENDEZVOUS=HOST:PORT to the address at which the other machines reach it."
        ) from None


def endpoint(text: str, shown_as: str) -> tuple[str, int]:
    """HOST:PORT or HOST to its parts; the port of HOST alone is PORT. Raises ValueError for port 0, with `shown_as`."""
    address, port = parse_rendezvous_endpoint(text, PORT)
    if not port:
        raise ValueError(f"{shown_as} has no port. Use one from 1 to 65535, such as {PORT}.")
    return address, port


def check_own(address: str) -> None:
    """Raise ValueError if an address or a host's name is not of this machine."""
    try:
        family, kind, protocol, _, (host, *_) = socket.getaddrinfo(address, PORT, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise ValueError(
            f"RENDEZVOUS: {address} is not an address of this machine ({error.strerror}). The leader's "
            "machine alone sets RENDEZVOUS, to its own address. On the others run: python -m pipeline "
            "worker --join HOST:PORT"
        ) from None


def shown(address: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def local_address(towards: str) -> str:
    """This machine's own address in the network that leads to the address `towards`. Nothing is sent."""
    family, kind, protocol, _, address = socket.getaddrinfo(towards, PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def use_interface_to(address: str) -> None:
    """Make gloo and nccl use the network in which this machine reaches an address, unless the user chose one.

    Gloo would take the one of the host's name, which is often the loopback.
    """
    own = local_address(address)
    for name, found in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == own for one in found):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")


def lead(module: str, params: Params, equal: Facts, counts: tuple[int, int], launch: Launch) -> int:
    """Open a stage to other machines and run it with them. Returns the exit status. equal: see `facts`.

    launch: starts the processes of this machine. Raises ValueError if the port is in use.
    """
    address, port = own_endpoint(os.environ.get("RENDEZVOUS", ""))
    stage = OpenStage(module, sys.argv[1:], vars(params), uuid4().hex, *counts, equal)
    try:
        store = TCPStore(address, port, is_master=True, wait_for_workers=False, timeout=STORE_WAIT)
    except RuntimeError as error:
        raise ValueError(
            f"RENDEZVOUS={shown(address, port)} cannot be opened ({one_line(str(error))}). Set RENDEZVOUS "
            "to an address of this machine and a free port."
        ) from None
    store.set(STAGE, stage.to_json())
    use_interface_to(address)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the processes would print 20 lines when one is lost
    print(f"Other machines take part by: python -m pipeline worker --join {shown(address, port)}", flush=True)
    with printed_notices(address, port):
        status = launch(Hosts(store, stage.run_id, *counts, address, True))
    if status == 128 + signal.SIGTERM and counts[0] == counts[1] and store.check([FAILED]):
        name = store.get(FAILED).decode(errors="replace")
        raise ValueError(
            f"The processes of {one_line(name)} have failed, and NODES={counts[0]} needs all machines. "
            "The newest saved state is kept. Correct what is wrong on that machine, and run the same "
            "command again."
        )
    return status


def follow(equal: Facts, launch: Launch) -> int:
    """Take part in the stage of the invitation. Returns the exit status. equal, launch: see `lead`.

    Raises ValueError, with what differs, if this machine cannot compute what the leader's computes.
    """
    invitation = Invitation.load(Path(os.environ[INVITATION]))
    end_with_parent(invitation.process)
    stage = invitation.stage
    if different := differences(equal, stage.facts):
        raise ValueError(
            f"{socket.gethostname()} cannot take part. It differs from the leader's machine in: {different}. Use the "
            "same commit, the same packages (pip install -r requirements.lock) and the same data (a shared folder, or "
            "`dvc pull`), and start the worker again."
        )
    store = connected(invitation.address, invitation.port)
    if store is None or OpenStage.from_json(store.get(STAGE)).run_id != stage.run_id:
        return LEADER_LOST
    use_interface_to(invitation.address)
    return launch(Hosts(store, stage.run_id, stage.least, stage.most, invitation.address, False))


def connected(address: str, port: int) -> TCPStore | None:
    """The store of a leader's machine; None if it is not there."""
    try:
        socket.create_connection((address, port), timeout=5).close()  # torch prints a warning at each failed attempt
        store = TCPStore(address, port, is_master=False, timeout=CONNECT_WAIT)
        store.set_timeout(STORE_WAIT)
        return store
    except (OSError, RuntimeError):
        return None


def notify(address: str, port: int, text: str, failed: bool = False) -> None:
    """Send a line of text to a leader's machine, which prints it. Nothing happens if that machine is not there.

    failed: whether this machine's own processes have failed; see FAILED.
    """
    with suppress(RuntimeError):
        if store := connected(address, port):
            store.set(f"{NOTICES}/{store.add(NOTICES, 1)}", one_line(text))
            if failed:
                store.set(FAILED, socket.gethostname())


@contextmanager
def printed_notices(address: str, port: int) -> Iterator[None]:
    """While the block runs, print what other machines notify."""
    ended = threading.Event()
    store = connected(address, port)

    def show() -> None:
        number = 1
        while store and not ended.wait(0.5):
            while store.check([f"{NOTICES}/{number}"]):
                print(one_line(store.get(f"{NOTICES}/{number}").decode(errors="replace")), file=sys.stderr, flush=True)
                number += 1

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def one_line(text: str) -> str:
    """A text in one line of printable characters, cut to MOST_CHARACTERS."""
    return "".join(char if char.isprintable() else " " for char in text[:MOST_CHARACTERS]).strip()
