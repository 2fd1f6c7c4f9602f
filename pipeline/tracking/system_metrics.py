"""Load and memory of the machine, as MLflow measures them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


class Monitor:
    """One of MLflow's monitors (processor and memory, or GPUs)."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        monitor.collect_metrics()  # load is an average since the last call
        monitor.clear_metrics()

    def measure(self) -> dict[str, float]:
        """MLflow's name of each quantity, unit included -> its value now."""
        self._monitor.collect_metrics()
        found = self._monitor.aggregate_metrics()
        self._monitor.clear_metrics()
        return found


def machine_monitors() -> list[Monitor]:
    """The monitor of processor and memory and, if nvidia-ml-py is installed and finds GPUs, that of GPUs."""
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    monitors = [Monitor(CPUMonitor())]
    with suppress(ImportError, RuntimeError):
        monitors.append(Monitor(GPUMonitor()))
    return monitors
