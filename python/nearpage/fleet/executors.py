"""Where tasks run: in this process, in processes, on a Dask cluster, on Ray.

An executor is what ``concurrent.futures`` has: ``submit`` with a future. What is here can also begin anew after a worker or a
scheduler was lost (:meth:`Executor.recover`). Anything else with ``submit`` is taken, too, and a ``dask.distributed.Client``.
"""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import signal
import time
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Protocol

from ..errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Dask", "Executor", "InProcess", "Processes", "Ray", "Submits", "as_executor"]

_log = logging.getLogger(__name__)


class Executor(Protocol):
    """Where tasks run. It is a context: it ends what it began."""

    @property
    def workers(self) -> int:
        """Tasks that run at once, as far as is known."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]: ...
    def recover(self) -> None:
        """Begins anew, after what was submitted was lost. Raises if it cannot."""

    def stop(self) -> None:
        """Ends at once, and what runs with it."""

    def __enter__(self) -> Executor: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Submits(Protocol):
    """What else is taken: executors of ``concurrent.futures`` and those like them, and a Dask client."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Any: ...


class _Context:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends at once."""


class InProcess(_Context):
    """Tasks run where they are submitted, one after the other."""

    workers = 1

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def recover(self) -> None:
        """There is nothing to lose."""


def _ignore_interrupts() -> None:
    # Ctrl-C goes to the whole group of processes; the one in front decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Processes(_Context):
    """Tasks run in processes of this machine, as many as this process may use CPUs by default. As with everything that starts
    processes, a script that uses it keeps its work below ``if __name__ == "__main__":``."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ArgumentError(f"workers={workers}, expected 1 or more", "workers", "1 or more")
        self.workers = workers or len(os.sched_getaffinity(0))
        self._pool = self._begin()

    def _begin(self) -> concurrent.futures.ProcessPoolExecutor:
        # Not by fork: threads of libraries do not survive it.
        context = multiprocessing.get_context("spawn")
        return concurrent.futures.ProcessPoolExecutor(self.workers, context, initializer=_ignore_interrupts)

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        return self._pool.submit(call, *arguments)

    def recover(self) -> None:
        self.stop()
        self._pool = self._begin()

    def stop(self) -> None:
        processes = dict(getattr(self._pool, "_processes", None) or {})
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.join(5)


class Dask(_Context):
    """Tasks run on a Dask cluster: that of a scheduler's address (``tcp://…``), or a local one that ends with this object.

    A scheduler that does not answer is waited for, ``patience`` seconds, and asked anew. That it waits is logged within 6 seconds.
    """

    def __init__(self, address: str | None = None, *, workers: int | None = None, patience: float = 60.0) -> None:
        if workers is not None and workers < 1:
            raise ArgumentError(f"workers={workers}, expected 1 or more", "workers", "1 or more")
        self._distributed = _needed("distributed", "dask.distributed", "dask[distributed]")
        self._address, self._workers, self.patience = address, workers, patience
        self._cluster: Any = None
        self._is_own = True
        self._client = self._begin()

    @classmethod
    def of(cls, client: Any) -> Dask:
        """An executor of a client that stays its owner's."""
        self = cls.__new__(cls)
        self._distributed = _needed("distributed", "dask.distributed", "dask[distributed]")
        self._address, self._workers, self.patience = None, None, 60.0
        self._cluster, self._is_own, self._client = None, False, client
        return self

    def _begin(self) -> Any:
        if self._address is None:
            workers = self._workers or len(os.sched_getaffinity(0))
            self._cluster = self._distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
            )
            return self._distributed.Client(self._cluster)
        until = time.monotonic() + self.patience
        is_told = False
        while True:
            try:
                client = self._distributed.Client(self._address, timeout=min(5.0, self.patience))
                if not client.scheduler_info()["workers"]:
                    _log.warning("%s: the scheduler has no worker yet: tasks wait for one", self._address)
                return client
            except (OSError, TimeoutError) as error:
                left = until - time.monotonic()
                if left > 0 and not is_told:
                    _log.warning("%s: no Dask scheduler answers: waiting for it, %.0f seconds more", self._address, left)
                    is_told = True
                if left < 0:
                    expected = "the address of a Dask scheduler, such as tcp://HOST:8786"
                    message = f"{self._address}: {error or 'there is no answer'}, expected {expected}"
                    raise ArgumentError(message, self._address, expected) from error
                time.sleep(0.5)
            except ValueError as error:
                expected = "the address of a Dask scheduler, such as tcp://HOST:8786"
                raise ArgumentError(f"{self._address}: {error}, expected {expected}", self._address, expected) from error

    @property
    def workers(self) -> int:
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        except TypeError:
            found = self._client.scheduler_info()["workers"]
        # A worker runs as many tasks at once as it has threads.
        return max(1, sum(int(worker.get("nthreads", 1)) for worker in found.values()))

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        # Every call has an effect: none stands for another.
        asked = self._client.submit(call, *arguments, pure=False)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def done(asked: Any) -> None:
            if future.done():
                return
            try:
                if asked.status == "finished":
                    future.set_result(asked.result(timeout=30))
                elif asked.status == "error":
                    future.set_exception(asked.exception(timeout=30))
                else:
                    future.set_exception(ConnectionError(f"the scheduler does not know the task any more ({asked.status})"))
            except BaseException as error:
                future.set_exception(ConnectionError(str(error) or type(error).__name__))

        asked.add_done_callback(done)
        return future

    def recover(self) -> None:
        if not self._is_own:
            if self._client.status != "running":
                raise ConnectionError(f"the client is {self._client.status}")
            return
        if self._client.status == "running" and self._answers():
            return
        self.stop()
        self._client = self._begin()

    def _answers(self) -> bool:
        try:
            return bool(self._client.sync(self._client.scheduler.identity, callback_timeout=5))
        except Exception:
            return False

    def stop(self) -> None:
        if not self._is_own:
            return
        for part in (self._client, self._cluster):
            if part is not None:
                try:
                    part.close(timeout=5)
                except Exception:  # noqa: S110
                    # It is lost: there is nothing to end.
                    pass
        self._cluster = None


class Ray(_Context):
    """Tasks run on Ray: a cluster by its address (``auto``, ``ray://…``), or this machine."""

    def __init__(self, address: str | None = None, *, workers: int | None = None) -> None:
        self._ray = _needed("ray", "ray", "ray")
        self._arguments = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
        self._is_own = not self._ray.is_initialized()
        self._begin()

    def _begin(self) -> None:
        if not self._ray.is_initialized():
            self._ray.init(log_to_driver=False, **self._arguments)

    @property
    def workers(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        # What is lost is asked for again by who waits for it, not by Ray.
        future: Future[Any] = self._ray.remote(max_retries=0)(call).remote(*arguments).future()
        return future

    def recover(self) -> None:
        self._begin()

    def stop(self) -> None:
        if self._is_own:
            self._ray.shutdown()


class _Foreign(_Context):
    """Somebody's executor, which stays theirs."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.workers = int(getattr(executor, "_max_workers", 0) or len(os.sched_getaffinity(0)))

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        future: Future[Any] = self._executor.submit(call, *arguments)
        return future

    def recover(self) -> None:
        """Whether it still takes calls shows with the next one."""


def as_executor(executor: Executor | Submits | None) -> Executor:
    """What runs tasks: ``None`` for this process, one of this module, a Dask client, or anything with ``submit``."""
    if executor is None:
        return InProcess()
    if isinstance(executor, (InProcess, Processes, Dask, Ray, _Foreign)):
        return executor
    if hasattr(executor, "scheduler_info") and hasattr(executor, "submit"):
        return Dask.of(executor)
    if hasattr(executor, "submit"):
        return _Foreign(executor)
    expected = "None, an executor of nearpage.fleet or of concurrent.futures, or a Dask client"
    raise ArgumentError(f"executor={executor!r}, expected {expected}", "executor", expected)


def _needed(module: str, name: str, package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        expected = f"the package (pip install '{package}')"
        raise ArgumentError(f"{name} is not installed, expected {expected}", name, expected) from error
