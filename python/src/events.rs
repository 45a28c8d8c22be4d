//! The events of a trace as a stream of Arrow batches. A thread reads the trace and is two batches ahead of who takes them, so memory
//! does not grow with the trace.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arrow_array::builder::{
    BooleanBuilder, Int32Builder, Int64Builder, UInt8Builder, UInt32Builder, UInt64Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, DurationNanosecondArray, RecordBatch, RecordBatchReader, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use nearpage::Pfn;
use nearpage_machine::work::{Stopped, Unwatched};
use nearpage_replay::{FramePlaces, Replay, ReplayError};
use nearpage_trace::{Event, TraceEvent};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use crate::error::Class;
use crate::guard::caught;
use crate::table::{Table, needed, stream_capsule, to_arrow, to_pandas};

/// Events of a batch.
const ROWS: usize = 1 << 16;
/// Batches that wait for who takes them.
const AHEAD: usize = 2;

fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The columns: name, kind, whether every event has it, its unit, what it means.
fn columns() -> [(&'static str, DataType, bool, &'static str, &'static str); 27] {
    let (text, of) = (dictionary(), "frame");
    let time = DataType::Duration(TimeUnit::Nanosecond);
    [
        ("time", time, true, "ns", "by the clock of the trace"),
        ("cpu", DataType::UInt32, true, "", "the CPU that logged it"),
        ("event", text.clone(), true, "", "what happened"),
        ("pfn", DataType::UInt64, false, of, "the first frame of the block"),
        ("order", DataType::UInt8, false, "", "of the block; of extfrag the one that was wanted"),
        ("flags", text.clone(), false, "", "of the request; of a lock how it is taken"),
        ("type", text.clone(), false, "", "migratetype; of extfrag the one that was wanted"),
        ("pid", DataType::UInt32, true, "", "the task"),
        ("comm", text.clone(), true, "", "its name"),
        ("pages", DataType::UInt64, false, "pages", "of bulk allocations: wanted, got"),
        ("text", text.clone(), false, "", "of a marker; of an object its cache"),
        ("node", DataType::UInt32, false, "", "of the block"),
        ("zone", text.clone(), false, "", "of the block"),
        ("wanted_node", DataType::UInt32, false, "", "that the request asks for"),
        (
            "percpu_refill",
            DataType::Boolean,
            false,
            "",
            "whether pagesets have a list for such blocks",
        ),
        ("fallback_order", DataType::UInt8, false, "", "of the block that was taken"),
        ("pageblock_order", DataType::UInt8, false, "", "of pageblocks"),
        ("fallback_type", text.clone(), false, "", "migratetype of the block that was taken"),
        ("fragmenting", DataType::Boolean, false, "", "whether less than a pageblock was taken"),
        (
            "change_ownership",
            DataType::Boolean,
            false,
            "",
            "whether the pageblock changed its type",
        ),
        ("lock", DataType::UInt64, false, "address", "or a hash of it"),
        ("result", DataType::Int64, false, "", "of waiting for a lock: 0, or an error"),
        ("call_site", text, false, "", "who asked for an object, or gave it back"),
        ("pointer", DataType::UInt64, false, "address", "of an object, or a hash of it"),
        ("bytes_requested", DataType::UInt64, false, "bytes", "that were asked for"),
        ("bytes", DataType::UInt64, false, "bytes", "that the object has"),
        ("accounted", DataType::Boolean, false, "", "whether a memory cgroup is charged"),
    ]
}

fn schema() -> SchemaRef {
    let fields = columns().map(|(name, kind, is_always, unit, meaning)| {
        let said = [("unit", unit), ("meaning", meaning)];
        let said = said.into_iter().filter(|(_, text)| !text.is_empty());
        let said: HashMap<String, String> =
            said.map(|(key, text)| (key.into(), text.into())).collect();
        Field::new(name, kind, !is_always).with_metadata(said)
    });
    Arc::new(Schema::new(fields.to_vec()))
}

/// Texts that come again and again, as numbers. The dictionary grows over the stream: a number means the same in every batch.
#[derive(Default)]
struct Texts {
    numbers: HashMap<Vec<u8>, i32>,
    texts: Vec<String>,
    /// The texts as of the last batch.
    array: Option<ArrayRef>,
    last: Option<(Vec<u8>, i32)>,
    keys: Int32Builder,
}

impl Texts {
    fn add(&mut self, text: &[u8]) {
        if let Some((last, number)) = &self.last
            && last == text
        {
            self.keys.append_value(*number);
            return;
        }
        let number = match self.numbers.get(text) {
            Some(&number) => number,
            None => {
                let number = self.texts.len() as i32;
                self.texts.push(String::from_utf8_lossy(text).into_owned());
                self.numbers.insert(text.to_vec(), number);
                number
            }
        };
        let last = self.last.get_or_insert_default();
        last.0.clear();
        last.0.extend_from_slice(text);
        last.1 = number;
        self.keys.append_value(number);
    }

    fn add_option(&mut self, text: Option<&[u8]>) {
        match text {
            Some(text) => self.add(text),
            None => self.keys.append_null(),
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let known = self.array.take().filter(|array| array.len() == self.texts.len());
        let texts = known.unwrap_or_else(|| Arc::new(StringArray::from_iter_values(&self.texts)));
        self.array = Some(texts.clone());
        Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(self.keys.finish(), texts)?))
    }
}

/// A batch that is being filled.
#[derive(Default)]
struct Batch {
    places: FramePlaces,
    times: Vec<i64>,
    cpus: UInt32Builder,
    events: Texts,
    pfns: UInt64Builder,
    orders: UInt8Builder,
    flags: Texts,
    /// Flags as text, by their bits.
    flag_texts: HashMap<u64, Vec<u8>>,
    types: Texts,
    pids: UInt32Builder,
    comms: Texts,
    pages: UInt64Builder,
    texts: Texts,
    nodes: UInt32Builder,
    zone_names: Texts,
    wanted_nodes: UInt32Builder,
    percpu_refills: BooleanBuilder,
    fallback_orders: UInt8Builder,
    pageblock_orders: UInt8Builder,
    fallback_types: Texts,
    fragmenting: BooleanBuilder,
    changes: BooleanBuilder,
    locks: UInt64Builder,
    results: Int64Builder,
    call_sites: Texts,
    pointers: UInt64Builder,
    requested: UInt64Builder,
    bytes: UInt64Builder,
    accounted: BooleanBuilder,
}

/// What an event has beside who, where and when.
#[derive(Default)]
struct Fields<'a> {
    name: &'a [u8],
    pfn: Option<u64>,
    order: Option<u8>,
    gfp: Option<nearpage::Gfp>,
    /// Flags as the trace prints them.
    flags: Option<&'a [u8]>,
    migratetype: Option<u8>,
    pages: Option<u64>,
    text: Option<&'a [u8]>,
    wanted_node: Option<u32>,
    percpu_refill: Option<bool>,
    lock: Option<u64>,
    result: Option<i64>,
    extfrag: Extfrag,
    object: Object<'a>,
}

/// What only a block of another type has.
#[derive(Default)]
struct Extfrag {
    fallback_order: Option<u8>,
    pageblock_order: Option<u8>,
    fallback_type: Option<u8>,
    is_fragmenting: Option<bool>,
    changes_ownership: Option<bool>,
}

/// What only objects have.
#[derive(Default)]
struct Object<'a> {
    call_site: Option<&'a [u8]>,
    pointer: Option<u64>,
    requested: Option<u64>,
    bytes: Option<u64>,
    is_accounted: Option<bool>,
}

impl<'a> Object<'a> {
    fn of(event: &TraceEvent<'a>, pointer: u64) -> Object<'a> {
        Object {
            call_site: event.field("call_site"),
            pointer: Some(pointer).filter(|&pointer| pointer != 0),
            requested: number(event, "bytes_req"),
            bytes: number(event, "bytes_alloc"),
            is_accounted: match event.field("accounted") {
                Some(b"true") => Some(true),
                Some(b"false") => Some(false),
                _ => None,
            },
        }
    }
}

/// A field as a number; none if it is not there, or no such number.
fn number<T: FromStr>(event: &TraceEvent<'_>, name: &str) -> Option<T> {
    std::str::from_utf8(event.field(name)?).ok()?.parse().ok()
}

fn flag(event: &TraceEvent<'_>, name: &str) -> Option<bool> {
    number::<u8>(event, name).map(|value| value != 0)
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn type_name(migratetype: u8) -> &'static [u8] {
    match migratetype {
        0 => b"unmovable",
        1 => b"movable",
        2 => b"reclaimable",
        3 => b"highatomic",
        _ => b"other",
    }
}

impl<'a> Fields<'a> {
    fn of(event: &TraceEvent<'a>) -> Fields<'a> {
        let none = Fields::default();
        match event.event {
            Event::Alloc { pfn, order, migratetype, gfp, .. } => Fields {
                name: b"alloc",
                pfn: pfn.map(|pfn| pfn.0),
                order: Some(order.0),
                gfp: Some(gfp),
                migratetype: Some(migratetype),
                ..none
            },
            Event::Free { pfn, order } => {
                Fields { name: b"free", pfn: Some(pfn.0), order: Some(order.0), ..none }
            }
            // It prints order 0 whatever the order.
            Event::FreeBatched => Fields {
                name: b"free_batched",
                pfn: event.field("pfn").and_then(hexadecimal),
                ..none
            },
            Event::ZoneLocked { pfn, order, migratetype, percpu_refill } => Fields {
                name: b"zone_locked",
                pfn: Some(pfn.0),
                order: Some(order.0),
                migratetype: Some(migratetype),
                percpu_refill: Some(percpu_refill),
                ..none
            },
            Event::PcpuDrain { pfn, order } => Fields {
                name: b"pcpu_drain",
                pfn: Some(pfn.0),
                order: Some(order.0),
                migratetype: number(event, "migratetype"),
                ..none
            },
            Event::Extfrag { pfn, order } => Fields {
                name: b"extfrag",
                pfn: Some(pfn.0),
                order: Some(order.0),
                migratetype: number(event, "alloc_migratetype"),
                extfrag: Extfrag {
                    fallback_order: number(event, "fallback_order"),
                    pageblock_order: number(event, "pageblock_order"),
                    fallback_type: number(event, "fallback_migratetype"),
                    is_fragmenting: flag(event, "fragmenting"),
                    changes_ownership: flag(event, "change_ownership"),
                },
                ..none
            },
            Event::Bulk { gfp, node, wanted } => Fields {
                name: b"bulk",
                gfp: Some(gfp),
                pages: Some(wanted),
                wanted_node: node,
                ..none
            },
            Event::BulkDone { got, .. } => Fields { name: b"bulk_done", pages: Some(got), ..none },
            Event::ObjectAlloc { cache, pointer, .. } => Fields {
                name: b"object_alloc",
                text: Some(cache),
                flags: event.field("gfp_flags"),
                wanted_node: number(event, "node"),
                object: Object::of(event, pointer),
                ..none
            },
            Event::ObjectFree { pointer } => Fields {
                name: b"object_free",
                text: event.field("name"),
                object: Object::of(event, pointer),
                ..none
            },
            Event::Marker(text) => Fields { name: b"marker", text: Some(text), ..none },
            Event::Other(name @ (b"contention_begin" | b"contention_end")) => Fields {
                name,
                // Its address, or the hash of it that the kernel prints.
                lock: event.fields.split(|&byte| byte == b' ').next().and_then(hexadecimal),
                flags: event.field("flags"),
                result: number(event, "ret"),
                ..none
            },
            Event::Other(name) => Fields { name, ..none },
            _ => Fields { name: b"unknown", ..none },
        }
    }
}

impl Batch {
    fn add(&mut self, event: &TraceEvent<'_>) {
        let fields = Fields::of(event);
        self.times.push(event.time_ns as i64);
        self.cpus.append_value(event.cpu.0);
        self.events.add(fields.name);
        self.pfns.append_option(fields.pfn);
        self.orders.append_option(fields.order);
        match fields.gfp {
            Some(gfp) => {
                let bits = u64::from(gfp.0);
                let text = self.flag_texts.entry(bits).or_insert_with(|| gfp.to_string().into());
                self.flags.add(text);
            }
            None => self.flags.add_option(fields.flags),
        }
        self.types.add_option(fields.migratetype.map(type_name));
        self.pids.append_value(event.pid);
        self.comms.add(event.comm);
        self.pages.append_option(fields.pages);
        self.texts.add_option(fields.text);
        let place = fields.pfn.and_then(|pfn| self.places.of(Pfn(pfn)));
        self.nodes.append_option(place.map(|(node, _)| node.0));
        self.zone_names.add_option(place.map(|(_, zone)| zone.name().as_bytes()));
        self.wanted_nodes.append_option(fields.wanted_node);
        self.percpu_refills.append_option(fields.percpu_refill);
        self.locks.append_option(fields.lock);
        self.results.append_option(fields.result);
        self.add_extfrag(&fields.extfrag);
        self.add_object(&fields.object);
    }

    fn add_extfrag(&mut self, extfrag: &Extfrag) {
        self.fallback_orders.append_option(extfrag.fallback_order);
        self.pageblock_orders.append_option(extfrag.pageblock_order);
        self.fallback_types.add_option(extfrag.fallback_type.map(type_name));
        self.fragmenting.append_option(extfrag.is_fragmenting);
        self.changes.append_option(extfrag.changes_ownership);
    }

    fn add_object(&mut self, object: &Object<'_>) {
        self.call_sites.add_option(object.call_site);
        self.pointers.append_option(object.pointer);
        self.requested.append_option(object.requested);
        self.bytes.append_option(object.bytes);
        self.accounted.append_option(object.is_accounted);
    }

    fn finish(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let times = std::mem::replace(&mut self.times, Vec::with_capacity(ROWS));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(DurationNanosecondArray::from(times)),
            Arc::new(self.cpus.finish()),
            self.events.finish()?,
            Arc::new(self.pfns.finish()),
            Arc::new(self.orders.finish()),
            self.flags.finish()?,
            self.types.finish()?,
            Arc::new(self.pids.finish()),
            self.comms.finish()?,
            Arc::new(self.pages.finish()),
            self.texts.finish()?,
            Arc::new(self.nodes.finish()),
            self.zone_names.finish()?,
            Arc::new(self.wanted_nodes.finish()),
            Arc::new(self.percpu_refills.finish()),
            Arc::new(self.fallback_orders.finish()),
            Arc::new(self.pageblock_orders.finish()),
            self.fallback_types.finish()?,
            Arc::new(self.fragmenting.finish()),
            Arc::new(self.changes.finish()),
            Arc::new(self.locks.finish()),
            Arc::new(self.results.finish()),
            self.call_sites.finish()?,
            Arc::new(self.pointers.finish()),
            Arc::new(self.requested.finish()),
            Arc::new(self.bytes.finish()),
            Arc::new(self.accounted.finish()),
        ];
        RecordBatch::try_new(schema.clone(), columns)
    }
}

type Answer = Result<RecordBatch, ArrowError>;

/// A pass over a trace, of which batches come out.
pub(crate) struct Batches {
    schema: SchemaRef,
    replay: Arc<Replay>,
    /// None until the first batch is asked for: some ask for the schema of a stream, and drop it.
    receiver: Option<Receiver<Answer>>,
}

impl Batches {
    fn of(replay: Arc<Replay>) -> Batches {
        Batches { schema: schema(), replay, receiver: None }
    }

    /// The receiving end; the reading begins with the first call, and ends when the stream is dropped.
    fn receiver(&mut self) -> Result<&Receiver<Answer>, ArrowError> {
        let begun = match self.receiver.take() {
            Some(receiver) => receiver,
            None => read(self.replay.clone(), self.schema.clone()).map_err(|error| {
                ArrowError::ExternalError(format!("a thread cannot be made: {error}").into())
            })?,
        };
        Ok(self.receiver.insert(begun))
    }
}

fn read(replay: Arc<Replay>, schema: SchemaRef) -> std::io::Result<Receiver<Answer>> {
    let (sender, receiver) = sync_channel::<Answer>(AHEAD);
    let work = move || {
        // A capture that is damaged tells no places; a replay names it.
        let places = replay.bundle().frame_places().unwrap_or_default();
        let mut batch = Batch { places, ..Batch::default() };
        let send = |batch: &mut Batch| {
            sender.send(batch.finish(&schema)).map_err(|_| ReplayError::from(Stopped))
        };
        let read = caught(|| {
            replay.bundle().events(&Unwatched, |event| {
                batch.add(event);
                if batch.times.len() == ROWS { send(&mut batch) } else { Ok(()) }
            })
        });
        let problem = match read {
            Ok(Ok(_)) => send(&mut batch).err().map(|error| error.to_string()),
            Ok(Err(ReplayError::Stopped(_))) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panicked) => Some(panicked.message()),
        };
        if let Some(problem) = problem {
            // Who asks no more does not listen either.
            let _ = sender.send(Err(ArrowError::ExternalError(problem.into())));
        }
    };
    thread::Builder::new().name("nearpage-events".into()).spawn(work)?;
    Ok(receiver)
}

impl Iterator for Batches {
    type Item = Answer;

    fn next(&mut self) -> Option<Answer> {
        match self.receiver() {
            Ok(receiver) => receiver.recv().ok(),
            Err(error) => Some(Err(error)),
        }
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The events of a trace: each stream and each iteration is a pass.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Events {
    pub(crate) replay: Arc<Replay>,
}

/// A pass, table by table.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct EventTables {
    batches: Mutex<Batches>,
    input: String,
}

#[pymethods]
impl Events {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer answer with its own schema.
        let _ = requested_schema;
        stream_capsule(py, Box::new(Batches::of(self.replay.clone())))
    }

    fn __iter__(&self) -> EventTables {
        let input = self.replay.bundle().name().to_owned();
        EventTables { batches: Mutex::new(Batches::of(self.replay.clone())), input }
    }

    /// By iteration: pyarrow itself does not look for signals while it takes a stream.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (pass, tables) = (self.__iter__(), PyList::empty(py));
        while let Some(table) = pass.__next__(py)? {
            tables.append(to_arrow(Bound::new(py, table)?.as_any())?)?;
        }
        needed(py, "pyarrow")?.call_method1("concat_tables", (tables,))
    }

    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_pandas(py, || self.to_arrow(py))
    }

    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        needed(slf.py(), "polars")?.call_method1("DataFrame", (slf,))
    }

    fn __repr__(&self) -> String {
        format!("Events({:?})", self.replay.bundle().name())
    }
}

#[pymethods]
impl EventTables {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Table>> {
        /// Between two looks for signals.
        const PERIOD: Duration = Duration::from_millis(40);
        let failed = |error: ArrowError| {
            let message = error.to_string();
            let message = message.strip_prefix("External error: ").unwrap_or(&message);
            Class::Replay.error(Some(self.input.clone()), message)
        };
        loop {
            py.check_signals()?;
            // Another thread that iterates over the same pass waits without the GIL, too.
            let answer = py.detach(|| {
                let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
                batches.receiver().map(|receiver| receiver.recv_timeout(PERIOD))
            });
            match answer.map_err(failed)? {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Ok(batch) => return Ok(Some(Table { batch: batch.map_err(failed)? })),
            }
        }
    }
}
