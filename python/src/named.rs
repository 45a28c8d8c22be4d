//! Numbers among arguments. One that does not fit is refused with the argument's name and what fits: Python's own error says neither.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::error::Class;

/// A number, some, or none.
pub(crate) trait Number: Sized {
    fn of(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<Self>;
}

/// Functions for `from_py_with`, each for arguments of its name.
macro_rules! named {
    ($($name:ident)*) => {$(
        pub(crate) fn $name<T: Number>(value: &Bound<'_, PyAny>) -> PyResult<T> {
            T::of(value, stringify!($name))
        }
    )*};
}

named! {
    align bytes bytes_per_node count cpus hard_bytes hours nbytes node nodes object_bytes pages points processes repeat rounds
    seconds seed soft_bytes starts stretch_seconds threads
}

macro_rules! whole {
    ($($kind:ty)*) => {$(
        impl Number for $kind {
            fn of(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<$kind> {
                value.extract().map_err(|error: PyErr| match is_too_large(&error, value) {
                    true => refused(value, argument, &format!("0 to {}", <$kind>::MAX)),
                    false => error,
                })
            }
        }
    )*};
}

whole! { u16 u32 u64 usize }

impl Number for f64 {
    /// What is too large is as large as can be: the limits of the argument refuse it.
    fn of(value: &Bound<'_, PyAny>, _argument: &str) -> PyResult<f64> {
        value.extract().or_else(|error: PyErr| match is_too_large(&error, value) {
            true if value.lt(0)? => Ok(f64::NEG_INFINITY),
            true => Ok(f64::INFINITY),
            false => Err(error),
        })
    }
}

impl<T: Number> Number for Option<T> {
    fn of(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<Option<T>> {
        (!value.is_none()).then(|| T::of(value, argument)).transpose()
    }
}

impl<T: Number> Number for Vec<T> {
    fn of(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<Vec<T>> {
        let all: Vec<Bound<'_, PyAny>> = value.extract()?;
        all.iter().map(|one| T::of(one, argument)).collect()
    }
}

impl<T: Number> Number for (T, T) {
    fn of(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<(T, T)> {
        let (first, second): (Bound<'_, PyAny>, Bound<'_, PyAny>) = value.extract()?;
        Ok((T::of(&first, argument)?, T::of(&second, argument)?))
    }
}

fn is_too_large(error: &PyErr, value: &Bound<'_, PyAny>) -> bool {
    error.is_instance_of::<PyOverflowError>(value.py())
}

/// The error of a number that does not fit.
fn refused(value: &Bound<'_, PyAny>, argument: &str, expected: &str) -> PyErr {
    // Python shows no number of thousands of digits.
    let shown = value.str().map_or_else(|_| "a long number".into(), |text| text.to_string());
    let message = format!("{argument}={shown}, expected {expected}");
    Class::Argument.error(Some(argument.into()), message)
}
