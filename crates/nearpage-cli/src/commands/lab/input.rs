//! Scenarios and tables of costs: by name, in files, and on standard input.

use std::io::{self, Read};

use nearpage_lab::{LabError, Scenario, catalog};
use nearpage_sim::Costs;

/// Names standard input.
pub(super) const STANDARD_INPUT: &str = "-";
/// What messages call it.
const NAME: &str = "standard input";

pub(super) fn scenario(name: &str) -> Result<Scenario, LabError> {
    match name {
        STANDARD_INPUT => Scenario::from_bytes(NAME, &read()?),
        _ => catalog::scenario(name),
    }
}

pub(super) fn costs(name: &str) -> Result<Costs, LabError> {
    match name {
        STANDARD_INPUT => catalog::costs_from_bytes(NAME, &read()?),
        _ => catalog::costs(name),
    }
}

/// The text of a table of costs.
pub(super) fn costs_text(name: &str) -> Result<String, LabError> {
    match name {
        STANDARD_INPUT => Ok(costs(name)?.to_string()),
        _ => catalog::costs_text(name),
    }
}

fn read() -> Result<Vec<u8>, LabError> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| LabError::Read { path: NAME.into(), error })?;
    Ok(bytes)
}
