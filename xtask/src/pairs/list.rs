//! The pairs: a machine, a load, and a setting.

/// A load under a kernel's defaults (A), and under a setting (B).
pub struct Pair {
    /// The beginning of the kernel's version, or [`HOST`].
    pub kernel: &'static str,
    /// The load.
    pub load: &'static Load,
    /// What differs.
    pub setting: Setting,
    /// Its value in B.
    pub b: &'static str,
}

/// The recordings from which is predicted, and those with which predictions are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    A,
    B,
}

/// What differs between the two sides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// A sysctl that the model has.
    Known(&'static str),
    /// A sysctl that it does not have: it predicts that nothing changes.
    Unknown(&'static str),
    /// `transparent_hugepage=` of the kernel's command line, which the model does not have.
    HugePages,
}

impl Setting {
    /// Its name.
    pub const fn key(self) -> &'static str {
        match self {
            Setting::Known(key) | Setting::Unknown(key) => key,
            Setting::HugePages => "transparent_hugepage",
        }
    }
}

/// The kernel of a pair that is recorded on this machine.
pub const HOST: &str = "host";

/// Steps of a guest's program, on CPUs 0 to 2 or, of this machine, 0 and 1.
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// Its steps.
    pub steps: &'static [&'static str],
}

/// The nodes of all guests: MiB of memory, and CPUs.
pub const NODES: [(u32, u32); 2] = [(320, 2), (256, 1)];

const MIXED: Load = Load {
    name: "mixed",
    steps: &[
        "hog 0-2 24 2",
        "spawn 0-2 20 128",
        "threads 0,2 8",
        "cross 0 2 12 256",
        "cross 2 1 12 256",
        "files 1,2 150 6000",
        "stream 0 2 8 131072",
    ],
};
const HUGE: Load = Load { name: "huge", steps: &["hog 0-2 12 1 100", "spawn 0-2 12 128"] };
const HERE: Load = Load {
    name: "mixed",
    steps: &[
        "hog 0-1 150 3",
        "spawn 0-1 100 128",
        "cross 0 1 64 256",
        "cross 1 0 64 256",
        "files 0,1 500 6000",
        "stream 0 1 64 131072",
    ],
};

const FRACTION: Setting = Setting::Known("vm.percpu_pagelist_high_fraction");
const SCALE: Setting = Setting::Known("vm.watermark_scale_factor");
const LEAST: Setting = Setting::Known("vm.min_free_kbytes");
const BALANCING: Setting = Setting::Unknown("kernel.numa_balancing");

const fn pair(
    kernel: &'static str,
    load: &'static Load,
    setting: Setting,
    b: &'static str,
) -> Pair {
    Pair { kernel, load, setting, b }
}

/// All pairs. Pairs of a kernel and a load have A in common.
pub const PAIRS: &[Pair] = &[
    pair("6.1", &MIXED, FRACTION, "8"),
    pair("6.1", &MIXED, FRACTION, "100"),
    pair("6.1", &MIXED, LEAST, "12000"),
    pair("6.1", &MIXED, SCALE, "300"),
    pair("6.12", &MIXED, FRACTION, "8"),
    pair("6.12", &MIXED, FRACTION, "100"),
    pair("6.12", &MIXED, LEAST, "12000"),
    pair("6.12", &MIXED, SCALE, "300"),
    pair("6.18", &MIXED, FRACTION, "8"),
    pair("6.18", &MIXED, FRACTION, "100"),
    pair("6.18", &MIXED, LEAST, "12000"),
    pair("6.18", &MIXED, SCALE, "300"),
    pair("7.2", &MIXED, FRACTION, "8"),
    pair("7.2", &MIXED, LEAST, "12000"),
    pair(HOST, &HERE, FRACTION, "8"),
    pair(HOST, &HERE, SCALE, "60"),
    pair("6.12", &HUGE, Setting::HugePages, "never"),
    pair("6.12", &MIXED, BALANCING, "1"),
];

impl Pair {
    /// Its name, of letters, digits and hyphens.
    pub fn name(&self) -> String {
        let key = self.setting.key().rsplit('.').next().unwrap_or_default().replace('_', "-");
        format!("{}-{key}-{}", self.load_name(), self.b)
    }

    /// The name of what it has in common with other pairs: the kernel and the load.
    pub fn load_name(&self) -> String {
        format!("{}-{}", self.kernel.replace('.', ""), self.load.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_different() {
        let names: BTreeSet<String> = PAIRS.iter().map(Pair::name).collect();
        assert_eq!(names.len(), PAIRS.len());
        assert!(names.contains("61-mixed-percpu-pagelist-high-fraction-8"), "{names:?}");
    }
}
