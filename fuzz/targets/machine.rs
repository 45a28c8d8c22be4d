//! Descriptions of machines of any kind: archives, numactl, XML of hwloc, TOML, the short form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nearpage_machine::MachineDescription;

fuzz_target!(|content: &[u8]| drop(MachineDescription::from_reader("fuzzed", content)));
