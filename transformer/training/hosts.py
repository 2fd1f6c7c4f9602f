"""A training on several machines: torch's elastic agent on each, with its rendezvous on the leader's (c10d).

Rendezvous, membership and restarts are torch's, as in torchrun. Four things are different here:
- The processes on the leader's machine have the lowest ranks, so the one that writes files is always there.
- Machines that are lost are noticed by their heartbeats. Torch itself would wait until a collective operation fails.
- When a process ends, all start again only if that process was killed, or if another machine was lost or stopped.
- Other machines take part until the leader closes the rendezvous, after it has written all its files.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore
from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousConnectionError, RendezvousInfo
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout
from torch.distributed.launcher.api import LaunchConfig

from transformer.training.failures import KILLED, OWN_ERROR, cause, print_failure

SECONDS_TO_SAVE = 300  # after a signal, before the processes are killed
SECONDS_TO_LEAVE = 10  # the same on other machines, where no process saves anything
LAST_CALL = timedelta(seconds=15)  # how long the rendezvous waits for more machines when there are enough
NO_LIMIT = timedelta(days=365)
HEARTBEAT_SECONDS, MISSED_HEARTBEATS = 5, 3  # a machine that misses so many is lost
KILLS = 3  # how often all start again because a process of this machine was killed
FAILED = "failed"  # key in the store, with the name of a machine whose own processes have failed
LEADER_LOST = 75  # exit status: the connection to the leader's machine was lost
AFTER_THE_LEADER = "~"  # torch numbers the machines in the order of their names; this is after all letters


@dataclass(frozen=True)
class Hosts:
    """The machines of a training. store: on the leader's machine. run_id: names this training in it.

    least, most: how many machines take part. address: of the leader's machine. leads: whether this is that machine.
    """

    store: TCPStore
    run_id: str
    least: int
    most: int
    address: str
    leads: bool


def run_agent(hosts: Hosts, config: LaunchConfig, command: tuple[str, ...]) -> int:
    """Run Python with a command in the processes of this machine, together with other machines, to the end.

    config: how many processes, and where they write errors. Returns the exit status: 0 when the training has ended,
    LEADER_LOST, or 1 after an error, which is printed. Raises SignalException for a signal.
    """
    rendezvous = Rendezvous.of(hosts)
    spec = WorkerSpec(
        role="training",
        local_world_size=config.nproc_per_node,
        rdzv_handler=rendezvous,
        entrypoint=sys.executable,
        args=command,
        max_restarts=KILLS,
        monitor_interval=0.1,
        master_addr=hosts.address,
        numa_options=config.numa_options,
    )
    agent = Agent(spec, config, hosts.leads)
    try:
        result: Any = agent.run()
    except RendezvousClosedError:
        return 0
    except (RendezvousConnectionError, DistError):
        if hosts.leads:
            raise
        return LEADER_LOST
    status = 0
    if result and result.is_failed():
        status = print_failure(result.failures, agent.get_worker_group().workers[0].world_size)
    if hosts.leads:
        rendezvous.shutdown()
    return status


class Rendezvous(DynamicRendezvousHandler):
    """Torch's rendezvous, in which the leader's machine has rank 0 and lost machines are noticed."""

    leads: bool
    store: TCPStore
    members: frozenset = frozenset()  # the machines of this round

    @classmethod
    def of(cls, hosts: Hosts) -> Rendezvous:
        """The rendezvous of these machines."""
        name = hosts.address if hosts.leads else f"{AFTER_THE_LEADER}{socket.gethostname()}"
        handler = cls.from_backend(
            hosts.run_id,
            hosts.store,
            C10dRendezvousBackend(hosts.store, hosts.run_id),
            hosts.least,
            hosts.most,
            name,
            RendezvousTimeout(join=NO_LIMIT, last_call=LAST_CALL),
            HEARTBEAT_SECONDS,
            MISSED_HEARTBEATS,
        )
        handler.leads, handler.store = hosts.leads, hosts.store
        return handler

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until enough machines are there. Raises RendezvousClosedError when the leader has ended the training."""
        # A new store for the processes of each round: in the old one are the addresses of processes that have ended.
        self._bootstrap_store_info = self._shared_tcp_store_server = None
        if self.leads:
            if self._settings.min_nodes > 1:
                print(f"Waiting until {self._settings.min_nodes} machines are there.", flush=True)
        else:
            self._wait_for_leader()
        with self._ended_by_a_failure():
            info = super().next_rendezvous()
        if self.leads:
            print(f"Machines that take part: {info.world_size}.", flush=True)
        return info

    @contextmanager
    def _ended_by_a_failure(self) -> Iterator[None]:
        """While the leader's machine waits in the block for a fixed number of machines: SIGTERM ends it if one failed.

        A machine that was lost may come back. One whose own processes have failed does not, so the wait had no end.
        """
        waited = threading.Event()

        def watch() -> None:
            while not waited.wait(1):
                if self.store.check([FAILED]) and not waited.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

        if self.leads and self._settings.min_nodes == self._settings.max_nodes:
            threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            waited.set()

    def _wait_for_leader(self) -> None:
        """Wait until the leader's machine takes part: the others alone could not go on."""
        while True:
            self._state_holder.sync()
            state = self._state_holder.state
            if state.closed:
                raise RendezvousClosedError
            if has_leader({*state.participants, *state.wait_list, *state.redundancy_list}):
                return
            time.sleep(1)

    def _get_world(self) -> tuple[int, int]:
        """The rank of this machine, and how many take part."""
        self.members = frozenset(self._state_holder.state.participants)
        if not has_leader(self.members):
            raise RendezvousConnectionError("the leader's machine is not among these machines")
        return super()._get_world()

    def lost(self) -> int:
        """How many machines of this round have left it, or have missed their heartbeats."""
        return len(self.members - self._state_holder.state.participants.keys())

    def num_nodes_waiting(self) -> int:
        """How many machines wait to take part or were lost. If there are any, torch's agent starts all again."""
        return super().num_nodes_waiting() + self.lost()


def has_leader(nodes: Any) -> bool:
    """Whether the leader's machine is among the nodes of a rendezvous."""
    return any(not node.addr.startswith(AFTER_THE_LEADER) for node in nodes)


class Agent(LocalElasticAgent):
    """Torch's agent, which starts the processes of this machine and restarts them when machines come and go."""

    def __init__(self, spec: WorkerSpec, config: LaunchConfig, leads: bool):
        assert config.logs_specs is not None
        self.leads, self.seconds = leads, SECONDS_TO_SAVE if leads else SECONDS_TO_LEAVE
        self.rendezvous: Any = spec.rdzv_handler
        super().__init__(spec, config.logs_specs, shutdown_timeout=self.seconds)

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Wait until enough machines are there. If one is lost before all know their ranks, the leader waits again."""
        while True:
            try:
                super()._rendezvous(worker_group)  # type: ignore[call-arg]
                return
            except DistError:
                if not self.leads:
                    raise

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """The state of the processes. After a failure, whether all start again is decided here."""
        result: Any = super()._monitor_workers(worker_group)  # type: ignore[call-arg]
        if result.is_failed():
            why = cause(result.failures.values())
            if why == OWN_ERROR:
                self._remaining_restarts = 0
            elif why != KILLED:
                self._remaining_restarts += 1  # torch takes one off
        elif result.state == WorkerState.SUCCEEDED and not self.leads and not self.rendezvous.is_closed():
            return RunResult(WorkerState.HEALTHY)  # the leader still writes, and may be killed and start again
        return result

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Stop all processes, wait for the machines, and start all again."""
        if self.leads:
            print("Machines came or went. All processes start again from the newest saved state.", flush=True)
        super()._restart_workers(worker_group)  # type: ignore[call-arg]

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the processes before the next round: by SIGTERM, so that they save their state.

        By SIGKILL if a machine was lost, since processes that wait for it cannot save.
        """
        self._shutdown(signal.SIGKILL if self.rendezvous.lost() else signal.SIGTERM, self.seconds)

    def _exit_barrier(self) -> None:
        """Do not wait for other machines: they wait for the leader, see `_monitor_workers`."""
