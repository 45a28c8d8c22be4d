//! `--verify-placement`: whether memory lies on the nodes that it was asked from.

use nearpage_doctor::{PlacementError, VerifiedPlacement};

use crate::commands::{CommandError, environment, print, print_json};

/// Placement could not be verified, or is wrong.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// What was asked for cannot be done here.
    #[error("--verify-placement: {0}")]
    Usage(Box<PlacementError>),
    /// It could not be verified.
    #[error(transparent)]
    Unverified(Box<PlacementError>),
    /// Some pages are elsewhere.
    #[error("{misplaced} of {placed} pages are on other nodes than asked")]
    Misplaced {
        /// How many are elsewhere.
        misplaced: u64,
        /// How many were looked at.
        placed: u64,
    },
}

impl VerifyError {
    pub(in crate::commands) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Unverified(_) | Self::Misplaced { .. } => 1,
        }
    }
}

impl From<PlacementError> for VerifyError {
    fn from(error: PlacementError) -> VerifyError {
        match error {
            PlacementError::TooLittle { .. } | PlacementError::TooMuch { .. } => {
                Self::Usage(error.into())
            }
            _ => Self::Unverified(error.into()),
        }
    }
}

/// Runs the command with this much memory on each node.
pub(super) fn run(bytes: u64, json: bool) -> Result<(), CommandError> {
    let environment = environment::read()?;
    let verified = match VerifiedPlacement::of(&environment, bytes) {
        Err(PlacementError::Environment(error)) => return Err(error.into()),
        verified => verified.map_err(VerifyError::from)?,
    };
    environment::tell(verified.warnings.iter().cloned());
    match json {
        true => print_json(&verified)?,
        false => print(&lines(&verified))?,
    }
    match verified.misplaced() {
        0 => Ok(()),
        misplaced => {
            let placed = verified.nodes.iter().map(|node| node.pages).sum();
            Err(VerifyError::Misplaced { misplaced, placed }.into())
        }
    }
}

fn lines(verified: &VerifiedPlacement) -> String {
    let VerifiedPlacement { binding, note, sample, nodes, .. } = verified;
    let asked: u64 = sample.nodes.iter().map(|(_, placement)| placement.asked_about()).sum();
    let touched: u64 = nodes.iter().map(|node| node.touched).sum();
    let note = note.as_ref().map_or(String::new(), |note| format!("Note      {note}\n"));
    format!(
        "Binding   {binding}\n{note}Sample    {asked} of {touched} pages that were touched\n\n{sample}"
    )
}
