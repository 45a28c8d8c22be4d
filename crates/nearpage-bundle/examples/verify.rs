//! Predicts what the kernel of a recorded machine printed, and counts the fields that agree.
//!
//! The argument is a recording: a bundle, an oracle JSON, or a copy of /sys and /proc. Without one it is this machine.

use std::error::Error;

use nearpage_bundle::Recording;
use nearpage_bundle::predict::{Class, Prediction, Wishes, compare};
use nearpage_machine::Budget;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "/".into());
    let recording = Recording::read(path.as_ref(), &Budget::DEFAULT)?;
    let capture = recording.capture(None)?;
    let machine = capture.machine()?;
    let prediction = Prediction::new(&recording, capture, &machine, &Wishes::default())?;
    println!("{}, rules of {}", recording.kernel, prediction.model.model.name);
    let comparisons = compare(&recording, capture, &machine, &prediction)?;
    for class in Class::ALL {
        println!("{}: {} the same", class.name(), comparisons.counts(class));
    }
    for field in comparisons.mismatches(false) {
        println!("{}: predicted {}, recorded {}", field.field, field.predicted, field.recorded);
    }
    Ok(())
}
