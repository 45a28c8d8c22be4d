//! Names of variables.

pub(super) const PREFIX: &str = "NEARPAGE_";
pub(super) const NUMA: &str = "NEARPAGE_NUMA";
pub(super) const RSEQ: &str = "NEARPAGE_RSEQ";
pub(super) const ENV: &str = "NEARPAGE_ENV";
/// What only nearpage's own tests read.
pub(super) const OF_TESTS: [&str; 19] = [
    "NEARPAGE_BUNDLES",
    "NEARPAGE_FORKS",
    "NEARPAGE_FUZZ_SECONDS",
    "NEARPAGE_FUZZ_SEED",
    "NEARPAGE_HOTPLUG_SECONDS",
    "NEARPAGE_LOOM_CANARY",
    "NEARPAGE_MODEL",
    "NEARPAGE_OBJECTS",
    "NEARPAGE_ORACLE",
    "NEARPAGE_OVERCOMMIT",
    "NEARPAGE_PINS",
    "NEARPAGE_PREEMPTIONS",
    "NEARPAGE_SCHEDULES",
    "NEARPAGE_SEED",
    "NEARPAGE_SEEDS",
    "NEARPAGE_STRESS_SECONDS",
    "NEARPAGE_TEST_ALONE",
    "NEARPAGE_TEST_CANARY",
    "NEARPAGE_TRACE_BYTES",
];
