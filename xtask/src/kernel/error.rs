//! Why a kernel could not be booted, or did not pass.

use std::io;

use super::emulator::Ended;

/// Why a kernel could not be booted, or did not pass.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A program is not there.
    #[error("{program} is not installed (apt install {package})")]
    NoEmulator {
        /// The program.
        program: &'static str,
        /// What has it.
        package: &'static str,
    },
    /// A target is not there.
    #[error("the target {0} is not installed (rustup target add {0})")]
    NoTarget(&'static str),
    /// Cargo failed; it has said why on standard error.
    #[error("cargo build of the kernel for {0} failed")]
    Build(&'static str),
    /// The machine cannot be read.
    #[error(transparent)]
    Description(#[from] nearpage_machine::DescriptionError),
    /// The machine cannot be had from QEMU.
    #[error("{0}")]
    Unfit(String),
    /// There is no such machine.
    #[error("no machine {name}; expected one of {known}")]
    NoMachine {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A program could not be run, or a file not be read or written.
    #[error("{what}: {error}")]
    Io {
        /// What could not.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// A machine did not pass.
    #[error("{name}: {ended}")]
    Machine {
        /// The machine.
        name: String,
        /// How it ended.
        ended: Ended,
    },
    /// A fault that was planted was not found.
    #[error("the planted fault {fault} was not found: the machine {ended}")]
    FaultNotFound {
        /// The fault.
        fault: &'static str,
        /// How the machine ended.
        ended: Ended,
    },
    /// QEMU's monitor did not do what it was asked for.
    #[error("QEMU's monitor: {0}")]
    Monitor(String),
    /// The kernel's texts are not what was predicted.
    #[error("{what} differs from what `nearpage topo` predicts:\n{difference}")]
    Text {
        /// Which text.
        what: &'static str,
        /// The lines.
        difference: String,
    },
    /// A program of ours failed.
    #[error("{0} failed")]
    Failed(String),
}

impl KernelError {
    /// Whether something is missing that could be installed.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::NoEmulator { .. } | Self::NoTarget(_))
    }

    /// For `map_err`: what could not be done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |error| Self::Io { what, error }
    }
}
