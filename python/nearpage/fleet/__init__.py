"""Many recordings, studied together: a store, studies, executors, and their answers.

A **store** is a folder or an object store with bundles, their events in Parquet, a catalogue, and results::

    store = nearpage.fleet.Store.open("traces")          # or s3://bucket/prefix, gs://bucket/prefix
    store.entries()                                      # the catalogue, a pyarrow Table: a row an entry
    store.bundle(hash)                                   # a nearpage.Bundle; the beginning of a hash will do
    store.results(study=None)                            # a pyarrow Table: a row a finished key, of one study or of all

A **study** is data: entries × models × settings × machines × seeds, and what to measure::

    study = nearpage.fleet.Study.from_toml("STUDY.toml")
    table = nearpage.fleet.run(study, store=store, executor=None, progress=None)

:func:`run` computes what is missing, and answers the same table as ``store.results(study)``. ``progress`` is called with keys
that are finished and keys that there are.

The table of results
====================

The table is sorted by ``key``. What identifies a row:

==================  ======  ==================================================================================
column              type    meaning
==================  ======  ==================================================================================
``key``             string  hash of content, parameters, version and model version, 64 hexadecimal digits
``entry``           string  hash of the entry's content
``load``            string  the load that was recorded
``machine``         string  the machine that recorded it, by its name or as words
``kernel``          string  the release of the recorded kernel
``model``           string  the rules, by their name
``settings``        string  a JSON object of what was set, keys sorted: ``{}``, ``{"pcp.batch": 31}``
``what_if``         string  a JSON text of the other machine, ``""`` for the recorded one
``seed``            int64   0 for the likely start, others for starts that are drawn
``version``         string  nearpage's version
``model_version``   string  16 hexadecimal digits: the rules, and the sources that play them
==================  ======  ==================================================================================

The figures have the names of ``nearpage replay rules --json``, and are those of the second pass. A figure that is not measured
is null. All are int64, but for ``kept_pages_mean``, ``whole_mean`` and ``seconds``, which are float64:

===========================  ===================================================================================
``holds``                    holds of zone locks, and takes of another CPU's pagesets
``holds_refill``             by cause: a pageset was refilled
``holds_drain``              a pageset was drained after a free
``holds_direct``             past the pagesets, of all orders
``holds_foreign``            another CPU's pagesets were drained
``holds_upkeep``             the once-a-second work
``foreign_takes``            those of ``holds`` that are takes of another CPU's pagesets
``operations``               blocks linked and unlinked under holds, and words written there for blocks
``longest_hold_operations``  the most of one hold
``kept_pages_mean``          pages in the pagesets of all CPUs, the mean over time
``kept_pages_max``           the most after any request
``whole_mean``               aligned ranges of 512 pages of which nobody has any, the mean over time
``whole_end``                how many they were at the end
``remote_pages``             pages from another node than the CPU's
``failed``                   requests that were refused; of those in bulk, the pages
``requests``                 blocks allocated and freed, and pages allocated in bulk
``events``                   events of the trace
``seconds``                  time of the trace from its first event to its last
===========================  ===================================================================================

Where a row comes from:

===========================  ===================================================================================
``rules``                    the rules that ``model`` named; of ``auto`` those of the recording's kernel
``start``                    ``likely`` for seed 0, ``drawn`` for others
``fidelity``                 the score of the replay under the recorded kernel's rules, in percent
``error_percent_…``          of ``holds``, ``holds_refill``, ``holds_drain``, ``operations`` and ``kept_pages_mean``: how much more
                             (below 0: less) that replay predicts than the kernel logged; null if it logged nothing. Of
                             ``holds`` kernels log those to refill and to drain
``host``, ``service``        whose recording it is; null if that is not known
``twin_of``, ``name``        of twins the name of the recording that they were made up after; the recording's own name
``first_…``                  each figure as the first pass has it, from the recorded start
===========================  ===================================================================================

More columns may follow these. Rows of several versions are never mixed silently: :meth:`Store.results` has those of this version
unless others are asked for.
"""

from __future__ import annotations

try:
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as _error:
    raise ImportError("nearpage.fleet needs pyarrow (pip install 'nearpage[fleet]')") from _error

from ..errors import RunError, StoreError, StudyError
from .executors import Dask, InProcess, Processes, Ray
from .ingest import Ingested, ingest
from .parquet import EventFile
from .run import run
from .store import Store
from .study import Study, Task

__all__ = [
    "Dask",
    "EventFile",
    "InProcess",
    "Ingested",
    "Processes",
    "Ray",
    "RunError",
    "Store",
    "StoreError",
    "Study",
    "StudyError",
    "Task",
    "ingest",
    "run",
]
