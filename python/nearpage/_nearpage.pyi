"""What the native half of the package has. Sizes are in pages unless a name says otherwise."""

import os
from typing import Any, Callable, Iterable, Iterator, Literal, Mapping, Sequence, final, overload

import pandas
import polars
import pyarrow

_Path = str | os.PathLike[str]
_Progress = Callable[[int, int], object] | None

__version__: str

@final
class Table:
    """A table of results. ``pandas``, ``polars``, ``duckdb`` and ``pyarrow`` take it by the Arrow C data interface; none of
    them is needed for :meth:`to_dicts`."""

    @property
    def column_names(self) -> list[str]: ...
    @property
    def schema(self) -> pyarrow.Schema:
        """Names and kinds of the columns."""
    def to_arrow(self) -> pyarrow.Table:
        """As a ``pyarrow.Table``, which shares the columns."""
    def to_pandas(self) -> pandas.DataFrame:
        """As a ``pandas.DataFrame``; it needs pyarrow, too. Whole numbers stay whole, also beside nulls."""
    def to_polars(self) -> polars.DataFrame:
        """As a ``polars.DataFrame``."""
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Its rows, each as a dict: ``pandas.DataFrame(table)`` takes them."""
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    @overload
    def __getitem__(self, key: int) -> dict[str, Any]:
        """A column by its name, or a row by its place."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def to_dicts(self) -> list[dict[str, Any]]:
        """Its rows, each as a dict."""
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def _repr_html_(self) -> str: ...

@final
class Node:
    """A node of a machine. ``None`` is a size that the input does not tell."""

    @property
    def id(self) -> int: ...
    @property
    def cpus(self) -> list[int]: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def free_bytes(self) -> int | None: ...

@final
class Machine:
    """A machine as data: nodes, CPUs, memory, distances.

    Where only sizes are known, memory gets the addresses of a PC (:attr:`warnings` says what was assumed).
    ``model`` names a set of rules (:func:`nearpage.models`); ``rebuilt`` asks for zonelists as after a rebuild at run time.
    """

    @staticmethod
    def from_numactl(text: str) -> Machine:
        """Of what ``numactl --hardware`` prints. Raises :class:`nearpage.MachineError`, as all of these."""
    @staticmethod
    def from_short_form(text: str) -> Machine:
        """Of the short form: ``--numa 2G,cpus=0-1 --numa 1G --numa-distance 0,1=21``."""
    @staticmethod
    def from_sysfs(path: _Path) -> Machine:
        """Of a copy of /sys and /proc: a folder, or a tar of one."""
    @staticmethod
    def open(path: _Path) -> Machine:
        """Of a file of any kind that ``nearpage topo --topology`` reads, or by the name of one that comes along."""
    @staticmethod
    def live() -> Machine:
        """This machine."""
    @property
    def source(self) -> str: ...
    @property
    def page_bytes(self) -> int: ...
    @property
    def nodes(self) -> list[Node]: ...
    @property
    def distances(self) -> list[list[int]]:
        """Rows and columns in the order of :attr:`nodes`."""
    @property
    def warnings(self) -> list[str]: ...
    def zoneinfo(self, model: str = "nearpage", *, rebuilt: bool = False) -> str:
        """/proc/zoneinfo as a kernel with these rules prints it when all memory is free."""
    def fallback(self, model: str = "nearpage", *, rebuilt: bool = False) -> dict[int, list[int]]:
        """For each node the order in which its requests try nodes, as the kernel logs it."""
    def zones(self, model: str = "nearpage", *, rebuilt: bool = False) -> Table:
        """The populated zones: extents, watermarks, sizes of pagesets, in pages."""
    def numactl(self) -> str:
        """As ``numactl --hardware`` prints it."""
    def to_dict(self, model: str = "nearpage", *, rebuilt: bool = False) -> dict[str, Any]:
        """The JSON of ``nearpage topo --json``."""
    def _repr_html_(self) -> str: ...

@final
class EventTables:
    """A pass over a trace, table by table."""

    def __iter__(self) -> EventTables: ...
    def __next__(self) -> Table: ...

@final
class Events:
    """The events of a trace: an Arrow stream, or tables of 65 536 events by iteration. Each is a pass over the trace.

    Columns: ``time`` (duration in ns, by the clock of the trace), ``cpu``, ``event``, ``pfn`` (null if there is none),
    ``order``, ``flags`` (of the request, names that are known), ``type`` (migratetype), ``pid``, ``comm``, ``pages`` (of bulk
    allocations: wanted, got), ``text`` (of a marker; the cache of an object), ``node`` and ``zone`` of the block, and fields that only some
    kinds have. The schema says the unit and the meaning of each, in the metadata of its fields.
    Memory does not grow with the trace, but for what is kept of it. Ctrl-C is heard between two tables of an iteration; other
    libraries that take the stream hear it by their own rules.
    """

    def to_arrow(self) -> pyarrow.Table: ...
    def to_pandas(self) -> pandas.DataFrame: ...
    def to_polars(self) -> polars.DataFrame: ...
    def __iter__(self) -> EventTables: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Fidelity:
    """How exactly a replay predicts what its kernel logged. ``float()`` of it is :attr:`percent`."""

    @property
    def percent(self) -> float | None:
        """The mean of :attr:`scores` that count; ``None`` if nothing is recorded to compare with."""
    @property
    def percent_known_state(self) -> float | None:
        """The same over refills and drains once nothing depends on what pagesets held at the start."""
    @property
    def meaning(self) -> str:
        """What :attr:`percent` means, in a sentence."""
    @property
    def worst(self) -> tuple[str, float] | None:
        """The quantity and the score of the worst row."""
    @property
    def scores(self) -> Table:
        """quantity, of, moved, wrong, percent (``None`` if the row does not count)."""
    @property
    def starts(self) -> tuple[int, float] | None:
        """How many starts were drawn for the ranges, and their level in percent; ``None`` if the kernel's own state is the start."""
    @property
    def rows(self) -> Table:
        """quantity, where, at, predicted, recorded, error_percent, range_least, range_most (of the starts), is_scored."""
    def __float__(self) -> float: ...
    def _repr_html_(self) -> str: ...

@final
class Report:
    """A finished replay. Open loop: allocations and frees come as recorded, whatever the model answers."""

    @property
    def bundle(self) -> str: ...
    @property
    def kernel(self) -> str:
        """The release of the recorded kernel."""
    @property
    def model(self) -> str:
        """The rules of the what-if, or of the replay if nothing was to be different."""
    @property
    def fidelity(self) -> Fidelity: ...
    @property
    def zones(self) -> Table:
        """The rows of :attr:`fidelity` that are about one zone."""
    @property
    def samples(self) -> Table:
        """At each sample: free pages of zones, pages and limits of the largest pagesets, recorded and predicted."""
    @property
    def totals(self) -> Table | None:
        """quantity, recorded, predicted, what_if; ``None`` if nothing was to be different. The log of a kernel does not tell
        all of them. ``pages_of_node_N`` and ``pages_by_REASON`` are pages handed out."""
    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``nearpage replay --json``."""
    def _repr_html_(self) -> str: ...

@final
class BoundAnswer:
    """Rules beside the fewest holds of zone locks that would do."""

    @property
    def models(self) -> Table: ...
    @property
    def points(self) -> Table: ...
    def to_dict(self) -> dict[str, Any]: ...

@final
class Rules:
    """Sets of rules, compared over bundles with Linux 6.18."""

    @property
    def rows(self) -> Table: ...
    @property
    def first_pass(self) -> Table: ...
    @property
    def means(self) -> Table: ...
    @property
    def musts(self) -> Table: ...
    def to_dict(self) -> dict[str, Any]: ...

@final
class Bundle:
    """A recording with a trace, in its start state.

    Long calls run without the GIL. ``progress`` is called on the caller's thread with bytes of the packed trace that are read,
    and that there are to read, of all passes; what it raises ends the call. Ctrl-C ends a call within 0.2 s.
    """

    @staticmethod
    def open(path: _Path) -> Bundle:
        """A folder with meta.json, or a tar of one. Raises :class:`nearpage.ReplayError`, as all calls of a bundle."""
    @staticmethod
    def shipped() -> Bundle:
        """The small bundle that comes along: Linux 6.12 with two nodes and two CPUs under a mixed load."""
    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    def events(self) -> Events: ...
    def replay(
        self,
        model: str = "auto",
        settings: Mapping[str, object] | None = None,
        *,
        machine: Machine | None = None,
        cpus: int | None = None,
        map_cpus: Literal["socket", "comm", "round-robin"] = "socket",
        repeat: int = 1,
        placement: Literal["model", "recorded"] = "model",
        starts: int = 0,
        progress: _Progress = None,
    ) -> Report:
        """Replays the trace under the recorded kernel's rules and compares; then once more as wished, if something is to be
        different: ``model``, ``settings`` (:func:`nearpage.settings`), ``machine``, or ``cpus`` of a machine with the recorded
        nodes. ``repeat`` copies of the trace run at once there. ``starts`` more starts than three are drawn for the ranges."""
    def explain(self, subject: str, *, progress: _Progress = None) -> list[str]:
        """The life of a page (``0x14a04``) or the decisions around a time of the trace (``5310.881638``, seconds)."""
    def sweep(
        self,
        over: Mapping[str, Iterable[object]],
        *,
        threads: int | None = None,
        progress: _Progress = None,
    ) -> Table:
        """Every combination of some settings, a row each: ``{"pcp.batch_scale_max": range(7)}``. Ctrl-C raises
        :class:`nearpage.Interrupted`, a ``KeyboardInterrupt`` with the combinations that are finished."""
    def counters(self) -> Table:
        """What the kernel counted, of /proc/vmstat: counter, before, after. Empty if a capture is missing."""
    def profile(self, *, progress: _Progress = None) -> Profile:
        """The load in figures."""
    def twin(
        self,
        folder: _Path,
        *,
        cpus: int | None = None,
        nodes: int | None = None,
        hours: float | None = None,
        stretch_seconds: float | None = None,
        seed: int = 0,
        progress: _Progress = None,
    ) -> Bundle:
        """Writes a statistical twin into a new folder, and opens it: a load like this one on a machine with more CPUs, nodes (a
        multiple of the recorded ones) or hours. The same seed makes the same bytes. There was no kernel: nothing is recorded to
        compare a replay with."""
    def bound(
        self,
        models: Sequence[str] = ...,
        points: Sequence[tuple[int, int]] = ...,
        *,
        start: Literal["any", "recorded"] = "any",
        progress: _Progress = None,
    ) -> BoundAnswer:
        """How few holds would do, beside what rules take. ``points`` are (pages a CPU, pages a hold)."""

@final
class Prepared:
    """A bundle whose trace was looked through once, to be measured many times. :mod:`nearpage.fleet` measures with it."""

    @staticmethod
    def open(path: _Path, *, progress: _Progress = None) -> Prepared: ...
    def measure(
        self,
        model: str,
        settings: Mapping[str, object],
        *,
        machine: Machine | None = None,
        cpus: int | None = None,
        map_cpus: str = "socket",
        repeat: int = 1,
        seed: int = 0,
        progress: _Progress = None,
    ) -> dict[str, Any]:
        """The figures of the second of two passes, as ``nearpage replay rules --json`` names them; ``first_pass`` has those of the first,
        which begins with the recorded start, ``rules`` the name of the rules that ``auto`` found. Memory does not grow with the trace.
        Seed 0 is the likely start; others are drawn."""

@final
class BundleFiles:
    """The files of a bundle, a folder or a tar of one, packed or not, one after the other: within the bounds of nearpage's readers,
    and without following links. :mod:`nearpage.fleet` reads bundles with it."""

    @staticmethod
    def open(path: _Path, *, stored: bool = False) -> BundleFiles:
        """``stored`` files of a folder are given as they are; else what is packed is unpacked."""
    def next(self) -> tuple[str, int | None] | None:
        """The next file's name, and its bytes if it is given as it is stored."""
    def read(self, bytes: int) -> bytes:
        """At most so many bytes of it; none at its end."""

@final
class Profile:
    """A load in figures that do not depend on its length nor on its machine's size: rates, shares of orders and migratetypes, lifetimes,
    bursts, who frees."""

    @property
    def figures(self) -> Table:
        """figure, value."""
    def distance(self, other: Profile) -> dict[str, float]:
        """How far another load is, figure by figure; 0 is the same. Of shares half the sum of differences, of rates, bursts and runs
        the mean of the logarithms of ratios."""
    def to_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Verification:
    """Recordings, predicted and compared with what their kernels printed."""

    @property
    def is_same(self) -> bool:
        """Whether all could be read and nothing differs, but for what a kernel computed at boot."""
    @property
    def captures(self) -> Table:
        """path, capture, model, matched and total fields, error."""
    @property
    def mismatches(self) -> Table:
        """path, capture, field, predicted, recorded, rule, is_boot_time."""
    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON of ``nearpage verify --json``."""
    def _repr_html_(self) -> str: ...

@final
class BenchReport:
    """What pages cost on this machine's real memory, in nanoseconds."""

    @property
    def rows(self) -> Table:
        """bench, allocator, threads, n, and nanoseconds: ns_median, ns_min, ns_max, ns_p99."""
    @property
    def skipped(self) -> list[tuple[str, str]]: ...
    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``nearpage bench --json``."""
    def _repr_html_(self) -> str: ...

@final
class LabReport:
    """What a scenario came to."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def has_failed(self) -> bool:
        """Whether something is off that is no known miss, or does not hold."""
    @property
    def counts(self) -> dict[str, float]: ...
    @property
    def verdicts(self) -> Table:
        """row, column, reference, model, verdict."""
    @property
    def holds(self) -> Table:
        """what, value, ok."""
    @property
    def tables(self) -> list[Table]:
        """The tables of counts, as texts."""
    def to_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Diagnosis:
    """What about a machine helps or hinders an allocator."""

    @property
    def source(self) -> str: ...
    @property
    def problems(self) -> int: ...
    @property
    def unreadable(self) -> list[str]:
        """Files that could not be judged, and what is wrong there."""
    @property
    def findings(self) -> Table:
        """check, level (good, note, problem), found, meaning, advice."""
    def to_dict(self) -> dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

@final
class Pages:
    """A block of pages: ``numpy.asarray(pages)`` is its memory as bytes. It goes back when neither the object nor a view of
    it is left."""

    @property
    def node(self) -> int | None: ...
    @property
    def pfn(self) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int:
        """Bytes."""

@final
class Object:
    """An object of a cache, or memory of any size: ``numpy.asarray(object)`` is its memory as bytes. It goes back when neither it nor
    a view of it is left."""

    @property
    def node(self) -> int | None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int:
        """Bytes."""

@final
class Cache:
    """A cache of objects of one size, near the CPU that asks. It goes when neither it nor an object of it is left."""

    @property
    def name(self) -> str: ...
    @property
    def object_bytes(self) -> int: ...
    def alloc(self, *, node: int | None = None, zeroed: bool = True) -> Object:
        """An object near this CPU, or on ``node`` if there is memory. Raises :class:`nearpage.AllocationError` if there is none."""
    def alloc_many(self, count: int, *, zeroed: bool = True) -> list[Object]:
        """``count`` objects by one call, at most 2**20, or fewer if memory is short."""
    def shrink(self) -> int:
        """Gives free slabs back; returns their pages."""
    def stats(self) -> dict[str, int]:
        """alloc_hits and free_hits (by a CPU's stack), alloc_misses and free_misses (all others), refills, flushes, objects_per_slab,
        pages_per_slab, stride_bytes (from an object to the next)."""

@final
class Memory:
    """Real memory of this process: ``bytes_per_node`` on each node of this machine, or on ``nodes`` emulated ones."""

    def __new__(cls, bytes_per_node: int, *, nodes: int | None = None, model: str = "nearpage") -> Memory: ...
    def alloc(
        self,
        pages: int = 1,
        *,
        node: int | None = None,
        policy: Literal["local", "bind", "interleave", "preferred", "preferred-many"] | None = None,
        nodes: Sequence[int] | None = None,
        zeroed: bool = True,
    ) -> Pages:
        """At least so many pages of 4 KiB, rounded up to a power of two, near this CPU or near ``node``.
        Raises :class:`nearpage.AllocationError` if there are none, or a limit would be exceeded."""
    def alloc_bytes(self, nbytes: int, *, node: int | None = None, align: int = 1, zeroed: bool = True) -> Object:
        """Memory of any size, near this CPU or on ``node``: of a size class, or whole pages above 8 KiB. ``align`` is a power of two."""
    def cache(self, name: str, object_bytes: int, *, align: int = 8) -> Cache:
        """A new cache of objects of one size. ``name`` is a word that no other cache of this memory has."""
    def set_limits(self, hard_bytes: int | None = None, soft_bytes: int | None = None, *, node: int | None = None) -> None:
        """How much may be in use on ``node``, or on all nodes together: no more than ``hard_bytes``; above ``soft_bytes``, which is less,
        reclaim would be woken. ``None`` is no limit. A limit below current use takes nothing from its users."""
    def limits(self, *, node: int | None = None) -> tuple[int | None, int | None]:
        """hard_bytes, soft_bytes."""
    def in_use(self, *, node: int | None = None) -> int:
        """Pages with users or in caches of CPUs, on ``node`` or on all."""
    def shrink(self) -> int:
        """Gives free slabs back, and the pages that CPUs keep; returns the pages of slabs."""
    @property
    def nodes(self) -> list[int]: ...
    @property
    def warnings(self) -> list[str]:
        """What is not as it was asked for."""
    def free_pages(self, node: int) -> int: ...
    def stats(self) -> Table:
        """A row a node: node, managed_pages, free_pages, in_use_pages, and allocations of pages since it was made: numa_hit, numa_miss,
        numa_foreign, local_node, other_node."""
    def zoneinfo(self) -> str: ...
    def buddyinfo(self) -> str: ...
    def slabinfo(self) -> str: ...
    def vmstat(self) -> dict[str, int]: ...
    def check(self) -> None:
        """Walks all of it; raises :class:`nearpage.InternalError` if a counter disagrees. No other thread may use it."""
    def _repr_html_(self) -> str: ...

@final
class Moment:
    """A machine at one moment, and what is wrong with it. What its kernel does not tell is null."""

    @property
    def source(self) -> str: ...
    @property
    def time_ms(self) -> int:
        """Milliseconds since 1970."""
    @property
    def kernel(self) -> str | None: ...
    @property
    def nodes(self) -> Table:
        """node, cpus, sizes in KiB, pages of hugetlb, allocations since boot by where they came from."""
    @property
    def zones(self) -> Table:
        """Marks and sizes of zones in pages, their largest free order, allocations since boot."""
    @property
    def blocks(self) -> Table:
        """node, zone, order, free_blocks."""
    @property
    def pagesets(self) -> Table:
        """node, zone, cpu, and in pages count, high, batch."""
    @property
    def events(self) -> Table:
        """event, since_boot."""
    @property
    def processes(self) -> Table:
        """Those with most memory: sizes in KiB, ``node_N_kib`` where their placement may be read; faults a second, of a second sample."""
    @property
    def marks(self) -> Table:
        """word, node, zone, reason. The book's page on the marks of ``nearpage top`` explains each word."""
    @property
    def unreadable(self) -> list[str]:
        """Files that could not be read, with the reason."""
    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``nearpage top --json``."""
    def _repr_html_(self) -> str: ...

def top(path: _Path | None = None, *, capture: str | None = None, seconds: float = 0.0, processes: int = 32) -> Moment:
    """This machine now, or a copy of /sys and /proc, or a recording. With ``seconds`` it takes two samples so far apart, and answers the
    second, with the marks and the faults of processes that need rates. ``processes`` is how many are told. Raises
    :class:`nearpage.MachineError`."""

def tape(path: _Path) -> list[Moment]:
    """The samples of a tape that ``nearpage top --record`` wrote, each judged beside the one before it."""

def run(
    scenario: _Path | Mapping[str, object], *, seed: int = 1, threads: int | None = None, progress: _Progress = None
) -> LabReport:
    """Runs a scenario: by its name, of a file, or of a dict with what a file would say. The same ``seed`` gives the same
    result on any number of ``threads``. ``progress`` is called with runs done and runs to do. After Ctrl-C the runs that have
    begun end in the background."""

def sweep(
    scenario: _Path | Mapping[str, object],
    over: Mapping[str, Iterable[object]],
    *,
    seed: int = 1,
    threads: int | None = None,
    progress: _Progress = None,
) -> LabReport:
    """Runs a scenario under all combinations of some settings: ``{"model": ["linux-6.12", "nearpage"]}``."""

def scenarios() -> list[str]: ...
def doctor(path: _Path | None = None, *, capture: str | None = None) -> Diagnosis:
    """Findings about this machine and process, or about a copy of /sys and /proc or a recording."""

def explain_log(log: _Path | bytes, *, progress: _Progress = None) -> list[dict[str, Any]]:
    """Why a kernel refused memory: each report of its log as in the JSON of ``nearpage explain``. ``log`` is a path, or the
    text as bytes. Raises :class:`nearpage.LogError`."""

def verify(paths: list[str], model: str, *, progress: _Progress = None) -> Verification: ...
def bench(
    benches: list[str],
    *,
    quick: bool,
    bytes: int | None = None,
    rounds: int | None = None,
    threads: int | None = None,
    seed: int | None = None,
    models: list[str],
    progress: _Progress = None,
) -> BenchReport: ...
def record(command: list[str], output: str, *, slab: bool, lock: bool, seconds: float | None = None) -> dict[str, Any]: ...
def compare_rules(
    paths: list[str], models: list[str], *, threads: int | None = None, progress: _Progress = None
) -> Rules: ...
def check_settings(settings: Mapping[str, object]) -> None:
    """Raises :class:`nearpage.ArgumentError` for settings that no machine takes."""

def what_if_machine(kind: str, text: str) -> Machine:
    """``name`` of a machine that comes along, ``short_form`` or ``numactl`` with a text."""

def machine_facts(report: Report) -> dict[str, int]:
    """The recorded machine: nodes, nodes_with_memory, cpus, memory_bytes, page_bytes."""

def model_version(name: str) -> str:
    """16 hexadecimal digits that are others when the rules are, or the sources that play them. ``auto`` is any of the rules."""

def _table(columns: list[tuple[str, str, list[Any]]]) -> Table: ...
def models() -> list[tuple[str, str]]: ...
def framed_page(title: str, style: str, body: str) -> str:
    """A page of HTML around ``body``, whose tables sort. What is a stranger's is escaped in it before."""

def settings() -> list[tuple[str, str, str]]: ...
def _panic(is_long: bool) -> None: ...
def _read_events(bundle: Bundle) -> int: ...
