//! Tables of results. A table is handed over by the Arrow C data interface: whoever takes it shares its columns, and copies nothing.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, DurationNanosecondArray, Float64Array,
    Int64Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray, UInt8Array,
    UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyImportError, PyIndexError, PyKeyError, PyModuleNotFoundError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyTuple};

use crate::error::Class;

/// The name that the Arrow PyCapsule interface prescribes.
const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// A capsule with a stream. Dropping the capsule releases what nobody took.
pub(crate) fn stream_capsule<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// Columns on their way to a table.
#[derive(Default)]
pub(crate) struct Columns(Vec<(Field, ArrayRef)>);

impl Columns {
    fn with(mut self, name: &str, kind: DataType, array: ArrayRef) -> Columns {
        self.0.push((Field::new(name, kind, true), array));
        self
    }

    pub(crate) fn text<S: AsRef<str>>(
        self,
        name: &str,
        values: impl IntoIterator<Item = Option<S>>,
    ) -> Columns {
        let array: StringArray = values.into_iter().collect();
        self.with(name, DataType::Utf8, Arc::new(array))
    }

    pub(crate) fn count(
        self,
        name: &str,
        values: impl IntoIterator<Item = Option<u64>>,
    ) -> Columns {
        let array: UInt64Array = values.into_iter().collect();
        self.with(name, DataType::UInt64, Arc::new(array))
    }

    pub(crate) fn real(self, name: &str, values: impl IntoIterator<Item = Option<f64>>) -> Columns {
        let array: Float64Array = values.into_iter().collect();
        self.with(name, DataType::Float64, Arc::new(array))
    }

    pub(crate) fn switch(
        self,
        name: &str,
        values: impl IntoIterator<Item = Option<bool>>,
    ) -> Columns {
        let array: BooleanArray = values.into_iter().collect();
        self.with(name, DataType::Boolean, Arc::new(array))
    }

    pub(crate) fn table(self) -> PyResult<Table> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = self.0.into_iter().unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        let batch = batch.map_err(|error| Class::Internal.error(None, error))?;
        Ok(Table { batch })
    }
}

/// A table of results.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Table {
    pub(crate) batch: RecordBatch,
}

#[pymethods]
impl Table {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer answer with its own schema.
        let _ = requested_schema;
        let batches: [Result<RecordBatch, ArrowError>; 1] = [Ok(self.batch.clone())];
        stream_capsule(py, Box::new(RecordBatchIterator::new(batches, self.batch.schema())))
    }

    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_arrow(slf.as_any())
    }

    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_pandas(slf.py(), || to_arrow(slf.as_any()))
    }

    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        needed(slf.py(), "polars")?.call_method1("DataFrame", (slf,))
    }

    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        (0..self.batch.num_rows()).map(|row| self.row(py, row)).collect()
    }

    /// Rows, as dicts.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.to_dicts(py)?.into_pyobject(py)?.try_iter()
    }

    /// A column by its name, or a row by its place.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(name) = key.extract::<String>() {
            let Some(column) = self.batch.column_by_name(&name) else {
                let message =
                    format!("{name:?}, expected one of {}", self.column_names().join(", "));
                return Err(PyKeyError::new_err(message));
            };
            return Ok(cells(py, column)?.into_pyobject(py)?.into_any());
        }
        let place: isize = key.extract()?;
        let rows = self.batch.num_rows() as isize;
        let row = if place < 0 { place + rows } else { place };
        if !(0..rows).contains(&row) {
            return Err(PyIndexError::new_err(format!("{place}, expected a row of {rows}")));
        }
        Ok(self.row(py, row as usize)?.into_any())
    }

    #[getter]
    fn schema<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_arrow(slf.as_any())?.getattr("schema")
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let schema = self.batch.schema();
        let columns = schema.fields().iter().zip(self.batch.columns()).map(|(field, column)| {
            Ok((field.name(), kind_of(field.data_type())?, cells(py, column)?))
        });
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let made = py.import("nearpage._nearpage")?.getattr("_table")?;
        Ok((made, PyTuple::new(py, [columns])?))
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("Table({} rows: {})", self.batch.num_rows(), self.column_names().join(", "))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        const SHOWN: usize = 60;
        let mut html = String::from("<table><thead><tr>");
        for name in self.column_names() {
            html.push_str(&format!("<th>{}</th>", escaped(&name)));
        }
        html.push_str("</tr></thead><tbody>");
        for row in 0..self.batch.num_rows().min(SHOWN) {
            html.push_str("<tr>");
            for column in self.batch.columns() {
                let value = cell(py, column, row)?;
                let text = if value.is_none() { String::new() } else { value.str()?.to_string() };
                html.push_str(&format!("<td>{}</td>", escaped(&text)));
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table>");
        if self.batch.num_rows() > SHOWN {
            html.push_str(&format!("<p>{SHOWN} of {} rows</p>", self.batch.num_rows()));
        }
        Ok(html)
    }
}

impl Table {
    fn row<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyDict>> {
        let of_row = PyDict::new(py);
        for (field, column) in self.batch.schema().fields().iter().zip(self.batch.columns()) {
            of_row.set_item(field.name(), cell(py, column, row)?)?;
        }
        Ok(of_row)
    }
}

/// The name of a kind of columns, as pickles have it.
fn kind_of(kind: &DataType) -> PyResult<&'static str> {
    Ok(match kind {
        DataType::Utf8 => "text",
        DataType::UInt64 => "u64",
        DataType::Int64 => "i64",
        DataType::Float64 => "f64",
        DataType::Boolean => "bool",
        DataType::UInt32 => "u32",
        DataType::UInt8 => "u8",
        DataType::Duration(_) => "ns",
        DataType::Dictionary(..) => "words",
        _ => return Err(Class::Internal.error(None, "a column of a kind that tables do not have")),
    })
}

/// A table of columns as a pickle has them: names, kinds, values.
#[pyfunction]
#[pyo3(name = "_table")]
pub(crate) fn unpickled(columns: Vec<(String, String, Bound<'_, PyAny>)>) -> PyResult<Table> {
    let mut made = Columns::default();
    for (name, kind, values) in columns {
        let array: ArrayRef = match &*kind {
            "text" => Arc::new(StringArray::from(values.extract::<Vec<Option<String>>>()?)),
            "u64" => Arc::new(UInt64Array::from(values.extract::<Vec<Option<u64>>>()?)),
            "i64" => Arc::new(Int64Array::from(values.extract::<Vec<Option<i64>>>()?)),
            "f64" => Arc::new(Float64Array::from(values.extract::<Vec<Option<f64>>>()?)),
            "bool" => Arc::new(BooleanArray::from(values.extract::<Vec<Option<bool>>>()?)),
            "u32" => Arc::new(UInt32Array::from(values.extract::<Vec<Option<u32>>>()?)),
            "u8" => Arc::new(UInt8Array::from(values.extract::<Vec<Option<u8>>>()?)),
            "ns" => Arc::new(DurationNanosecondArray::from(values.extract::<Vec<Option<i64>>>()?)),
            "words" => {
                let words = values.extract::<Vec<Option<String>>>()?;
                let words: DictionaryArray<Int32Type> =
                    words.iter().map(Option::as_deref).collect();
                Arc::new(words)
            }
            _ => {
                let message = format!("a column of kind {kind:?}, expected one of a table's");
                return Err(Class::Argument.error(Some("columns".into()), message));
            }
        };
        made = made.with(&name, array.data_type().clone(), array);
    }
    made.table()
}

/// All values of a column.
fn cells<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Vec<Bound<'py, PyAny>>> {
    (0..column.len()).map(|row| cell(py, column, row)).collect()
}

/// A value of a column; `None` for null.
fn cell<'py>(py: Python<'py>, column: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if column.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    let any = column.as_any();
    if let Some(of) = any.downcast_ref::<StringArray>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<UInt64Array>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<Int64Array>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<Float64Array>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<BooleanArray>() {
        return Ok(of.value(row).into_pyobject(py)?.to_owned().into_any());
    }
    if let Some(of) = any.downcast_ref::<UInt32Array>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<UInt8Array>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<DurationNanosecondArray>() {
        return Ok(of.value(row).into_pyobject(py)?.into_any());
    }
    if let Some(of) = any.downcast_ref::<DictionaryArray<Int32Type>>() {
        return cell(py, of.values(), of.keys().value(row) as usize);
    }
    Err(Class::Internal.error(None, "a column of a kind that tables do not have"))
}

/// A package that this one does not need until now. Where it is not, the error says how it comes.
pub(crate) fn needed<'py>(py: Python<'py>, package: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|error| {
        // An interrupt, as of Ctrl-C, may come while it loads.
        if !error.is_instance_of::<PyImportError>(py) {
            return error;
        }
        let brings = match package {
            "pandas" | "pyarrow" => "nearpage[pandas]",
            other => other,
        };
        let message = format!("{package} is not installed (pip install '{brings}')");
        let told = PyModuleNotFoundError::new_err(message);
        told.set_cause(py, Some(error));
        told
    })
}

/// What takes the capsule, as a `pyarrow.Table`.
pub(crate) fn to_arrow<'py>(table: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    needed(table.py(), "pyarrow")?.call_method1("table", (table,))
}

/// An Arrow table as a `pandas.DataFrame`, in which whole numbers stay whole.
pub(crate) fn to_pandas<'py>(
    py: Python<'py>,
    arrow: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    // Before the table is made: pyarrow looks for it, too, and says less where it is not.
    needed(py, "pandas")?;
    py.import("nearpage.frames")?.call_method1("to_pandas", (arrow()?,))
}

/// Text within HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
