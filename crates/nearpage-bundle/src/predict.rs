//! What Linux derives from a recorded machine: its sizes and settings in, a [`Plan`](nearpage_machine::Plan) out, and
//! the comparison with what the kernel printed.
//!
//! A prediction uses one derived field of the recording, `min_free_kbytes`, which is a setting too: the other fields
//! follow from the recorded value where there is one. Beside them it is predicted like any other field.

mod compare;
mod document;
mod error;
mod kernel;
mod prediction;
mod settings;

pub use compare::{Class, Comparison, Comparisons, Counts, compare};
pub use document::PredictionDocument;
pub use error::PredictError;
pub use kernel::{KernelModel, ModelChoice, UnknownModel};
pub use prediction::{Prediction, Wishes};
