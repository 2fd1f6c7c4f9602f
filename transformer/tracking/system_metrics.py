"""Load and memory of the machine, as MLflow measures them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


class Monitor:
    """One of MLflow's looks at the machine."""

    def __init__(self, monitor: Any) -> None:
        self._monitor = monitor
        monitor.collect_metrics()  # load is measured from the look before
        monitor.clear_metrics()

    def measure(self) -> dict[str, float]:
        """Load, memory and the like, by their names in MLflow, units included."""
        self._monitor.collect_metrics()
        found = self._monitor.aggregate_metrics()
        self._monitor.clear_metrics()
        return found


def machine_monitors() -> list[Monitor]:
    """Looks at processor and memory and, where nvidia-ml-py is installed and finds some, at GPUs."""
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    monitors = [Monitor(CPUMonitor())]
    with suppress(ImportError, RuntimeError):
        monitors.append(Monitor(GPUMonitor()))
    return monitors
