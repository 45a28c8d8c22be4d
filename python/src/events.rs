//! The events of a trace as a stream of Arrow batches. A thread reads the trace and is two batches ahead of who takes them, so memory
//! does not grow with the trace.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arrow_array::builder::{Int32Builder, UInt8Builder, UInt32Builder, UInt64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, DurationNanosecondArray, RecordBatch, RecordBatchReader, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use nearpage_machine::work::{Stopped, Unwatched};
use nearpage_replay::{Replay, ReplayError};
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

fn schema() -> SchemaRef {
    let of = |name: &str, kind: DataType, is_nullable: bool| Field::new(name, kind, is_nullable);
    Arc::new(Schema::new(vec![
        of("time", DataType::Duration(TimeUnit::Nanosecond), false),
        of("cpu", DataType::UInt32, false),
        of("event", dictionary(), false),
        of("pfn", DataType::UInt64, true),
        of("order", DataType::UInt8, true),
        of("flags", dictionary(), true),
        of("type", dictionary(), true),
        of("pid", DataType::UInt32, false),
        of("comm", dictionary(), false),
        of("pages", DataType::UInt64, true),
        of("text", dictionary(), true),
    ]))
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

    fn add_none(&mut self) {
        self.keys.append_null();
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
}

/// What an event has beside who, where and when.
#[derive(Default)]
struct Fields<'a> {
    name: &'a [u8],
    pfn: Option<u64>,
    order: Option<u8>,
    flags: Option<nearpage::Gfp>,
    migratetype: Option<u8>,
    pages: Option<u64>,
    text: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn of(event: &Event<'a>) -> Fields<'a> {
        let none = Fields::default();
        match *event {
            Event::Alloc { pfn, order, migratetype, gfp, .. } => Fields {
                name: b"alloc",
                pfn: pfn.map(|pfn| pfn.0),
                order: Some(order.0),
                flags: Some(gfp),
                migratetype: Some(migratetype),
                ..none
            },
            Event::Free { pfn, order } => {
                Fields { name: b"free", pfn: Some(pfn.0), order: Some(order.0), ..none }
            }
            Event::FreeBatched => Fields { name: b"free_batched", ..none },
            Event::ZoneLocked { pfn, order, migratetype, .. } => Fields {
                name: b"zone_locked",
                pfn: Some(pfn.0),
                order: Some(order.0),
                migratetype: Some(migratetype),
                ..none
            },
            Event::PcpuDrain { pfn, order } => {
                Fields { name: b"pcpu_drain", pfn: Some(pfn.0), order: Some(order.0), ..none }
            }
            Event::Extfrag { pfn, order } => {
                Fields { name: b"extfrag", pfn: Some(pfn.0), order: Some(order.0), ..none }
            }
            Event::Bulk { gfp, wanted, .. } => {
                Fields { name: b"bulk", flags: Some(gfp), pages: Some(wanted), ..none }
            }
            Event::BulkDone { got, .. } => Fields { name: b"bulk_done", pages: Some(got), ..none },
            Event::ObjectAlloc { cache, .. } => {
                Fields { name: b"object_alloc", text: Some(cache), ..none }
            }
            Event::ObjectFree { .. } => Fields { name: b"object_free", ..none },
            Event::Marker(text) => Fields { name: b"marker", text: Some(text), ..none },
            Event::Other(name) => Fields { name, ..none },
            _ => Fields { name: b"unknown", ..none },
        }
    }
}

impl Batch {
    fn add(&mut self, event: &TraceEvent<'_>) {
        let fields = Fields::of(&event.event);
        self.times.push(event.time_ns as i64);
        self.cpus.append_value(event.cpu.0);
        self.events.add(fields.name);
        self.pfns.append_option(fields.pfn);
        self.orders.append_option(fields.order);
        match fields.flags {
            Some(gfp) => {
                let bits = u64::from(gfp.0);
                let text = self.flag_texts.entry(bits).or_insert_with(|| gfp.to_string().into());
                self.flags.add(text);
            }
            None => self.flags.add_none(),
        }
        match fields.migratetype {
            Some(0) => self.types.add(b"unmovable"),
            Some(1) => self.types.add(b"movable"),
            Some(2) => self.types.add(b"reclaimable"),
            Some(3) => self.types.add(b"highatomic"),
            Some(_) => self.types.add(b"other"),
            None => self.types.add_none(),
        }
        self.pids.append_value(event.pid);
        self.comms.add(event.comm);
        self.pages.append_option(fields.pages);
        match fields.text {
            Some(text) => self.texts.add(text),
            None => self.texts.add_none(),
        }
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
        let mut batch = Batch::default();
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
