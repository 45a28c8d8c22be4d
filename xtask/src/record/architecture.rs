//! Processors that a machine can have, and what goes with each.

use clap::ValueEnum;

use super::topology::Machine;

/// A processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Architecture {
    /// With the boards pc and q35
    #[default]
    #[value(name = "x86_64")]
    X86_64,
    /// With the board virt, described by a device tree
    #[value(name = "aarch64")]
    Aarch64,
}

impl Architecture {
    /// The emulator.
    pub const fn emulator(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86_64",
            Self::Aarch64 => "qemu-system-aarch64",
        }
    }

    /// Debian's package of the emulator.
    pub const fn emulator_package(self) -> &'static str {
        match self {
            Self::X86_64 => "qemu-system-x86",
            Self::Aarch64 => "qemu-system-arm",
        }
    }

    /// How Debian's names of kernels end.
    pub const fn of_debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target for which Rust builds static programs.
    pub const fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The board of a machine that names none.
    pub const fn board(self) -> Machine {
        match self {
            Self::X86_64 => Machine::Pc,
            Self::Aarch64 => Machine::Virt,
        }
    }

    /// What `-cpu` is given: all that the emulator has. Of aarch64 this one is the faster to emulate.
    pub const fn cpu(self) -> &'static str {
        match self {
            Self::X86_64 => "max",
            Self::Aarch64 => "cortex-a72",
        }
    }

    /// The device on which the kernel prints.
    pub const fn console(self) -> &'static str {
        match self {
            Self::X86_64 => "ttyS0",
            Self::Aarch64 => "ttyAMA0",
        }
    }

    /// The device of the serial port through which files are sent.
    pub const fn port(self) -> &'static str {
        match self {
            Self::X86_64 => "/dev/ttyS1",
            Self::Aarch64 => "/dev/ttyS0",
        }
    }

    /// The argument that adds that port: the board virt has one of its own only.
    pub const fn port_argument(self) -> &'static str {
        match self {
            Self::X86_64 => "-serial",
            Self::Aarch64 => "-device",
        }
    }

    /// Its value, for the character device `id`.
    pub fn port_value(self, id: &str) -> String {
        match self {
            Self::X86_64 => format!("chardev:{id}"),
            Self::Aarch64 => format!("pci-serial,chardev={id}"),
        }
    }
}
