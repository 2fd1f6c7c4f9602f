"""Why the processes of a training ended: which failure caused the others, and the message about it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from transformer.training.distributed import LOST, NOT_REACHED

# Kinds of failures: the first is the likeliest to have caused the others, the last only follows from them. A process
# that could not connect to the others counts as killed, since it may connect when all start again.
KILLED, OWN_ERROR, LOST_ANOTHER, ASKED_TO_STOP = range(4)


def print_failure(failures: dict[int, ProcessFailure], count: int) -> int:
    """Print why processes failed, in one line, and return the exit status. failures: rank -> failure.

    count: of all processes. A process passes its error on in the file that TORCHELASTIC_ERROR_FILE names; see
    pipeline/stage.py.
    """
    if cause(failures.values()) == ASKED_TO_STOP:
        return 128 + signal.SIGTERM  # all were asked to stop, and did
    rank, failure = min(failures.items(), key=lambda item: (kind(item[1]), item[0]))
    if failure.exitcode > 0 and failure.error_file_data.get("reported"):
        print(f"error: {failure.message}", file=sys.stderr)
        return 1
    end = signal.Signals(-failure.exitcode).name if failure.exitcode < 0 else f"exit status {failure.exitcode}"
    print(
        f"error: Process {rank} of {count} ended with {end}. The other processes were stopped. Fix the error above, if "
        "there is one, and run the same command again. A training resumes from its last saved state, if it has one.",
        file=sys.stderr,
    )
    return 1


def cause(failures: Iterable[ProcessFailure]) -> int:
    """The kind of the failure that likely caused the others."""
    return min(map(kind, failures))


def kind(failure: ProcessFailure) -> int:
    """The kind of a failure: KILLED, OWN_ERROR, LOST_ANOTHER (process) or ASKED_TO_STOP."""
    if failure.exitcode == -signal.SIGTERM or failure.exitcode > 128:
        return ASKED_TO_STOP  # torchrun stops the others by SIGTERM
    if failure.exitcode < 0 or NOT_REACHED in failure.message:
        return KILLED
    return LOST_ANOTHER if LOST in failure.message else OWN_ERROR
