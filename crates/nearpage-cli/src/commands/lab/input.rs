//! Scenarios and tables of costs: by name, in files, and on standard input.

use std::io;

use nearpage_lab::{LabError, Scenario, catalog};
use nearpage_sim::Costs;

use crate::commands::input::{STANDARD, STANDARD_INPUT};

pub(super) fn scenario(name: &str) -> Result<Scenario, LabError> {
    match name {
        STANDARD => Scenario::from_bytes(STANDARD_INPUT, &read()?),
        _ => catalog::scenario(name),
    }
}

pub(super) fn costs(name: &str) -> Result<Costs, LabError> {
    match name {
        STANDARD => catalog::costs_from_bytes(STANDARD_INPUT, &read()?),
        _ => catalog::costs(name),
    }
}

/// The text of a table of costs.
pub(super) fn costs_text(name: &str) -> Result<String, LabError> {
    match name {
        STANDARD => Ok(costs(name)?.to_string()),
        _ => catalog::costs_text(name),
    }
}

fn read() -> Result<Vec<u8>, LabError> {
    catalog::read_all(STANDARD_INPUT, io::stdin().lock())
}
