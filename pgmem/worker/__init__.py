"""Work off the critical path: compactions that the queue holds, done by any number of processes."""

from pgmem.worker.worker import Health, Worker

__all__ = ["Health", "Worker"]
