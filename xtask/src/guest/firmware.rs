//! Which node of the machine each of the kernel's nodes is: the kernel numbers nodes by itself, and the firmware's tables (SRAT,
//! and MADT for the CPUs) say which memory and which CPUs are of which domain. QEMU numbers domains as its nodes.

use nearpage::NodeId;
use nearpage_kernel::firmware::{Machine, acpi};
use serde_json::Value;

/// What the machine sent of itself.
pub struct Firmware {
    machine: Box<Machine>,
    /// Number of each CPU that the kernel knows, and its APIC's id.
    cpus: Vec<(u64, u64)>,
}

impl Firmware {
    /// Reads the tables and `/proc/cpuinfo`.
    ///
    /// # Errors
    ///
    /// They cannot be read, or the reader had to guess.
    pub fn read(madt: &[u8], srat: &[u8], cpuinfo: &str) -> Result<Firmware, String> {
        let mut machine = Box::new(Machine::new());
        let read = acpi::read_madt(madt, &mut machine);
        let read = read.and_then(|()| acpi::read_srat(srat, &mut machine));
        read.map_err(|error| format!("firmware: {error}"))?;
        if let Some(note) = machine.notes().next() {
            return Err(format!("firmware: {note}"));
        }
        Ok(Firmware { machine, cpus: apics(cpuinfo) })
    }

    /// The domain of one of the kernel's nodes, as `topo` prints it: the one that has its memory and its CPUs.
    ///
    /// # Errors
    ///
    /// There is none, or several.
    pub fn domain(&self, node: &Value, page_bytes: u64) -> Result<NodeId, String> {
        let empty = Vec::new();
        let mut domains = Vec::new();
        for zone in node["zones"].as_array().unwrap_or(&empty) {
            let number = |key: &str| zone[key].as_u64().unwrap_or(0);
            if number("present") > 0 {
                let last = number("start_pfn") + number("spanned").max(1) - 1;
                domains.push(self.of_memory(number("start_pfn") * page_bytes)?);
                domains.push(self.of_memory(last * page_bytes)?);
            }
        }
        for cpu in node["cpus"].as_array().unwrap_or(&empty) {
            domains.push(self.of_cpu(cpu.as_u64().unwrap_or(u64::MAX))?);
        }
        domains.sort_unstable();
        domains.dedup();
        match domains[..] {
            [domain] => Ok(domain),
            _ => Err(format!("SRAT: domains {domains:?} have what the kernel has in {node}")),
        }
    }

    fn of_memory(&self, address: u64) -> Result<NodeId, String> {
        let area = self.machine.areas().find(|(range, ..)| range.contains(&address));
        area.map(|(_, node, _)| node).ok_or(format!("SRAT: no domain has memory at {address:#x}"))
    }

    fn of_cpu(&self, cpu: u64) -> Result<NodeId, String> {
        let apic = self.cpus.iter().find(|(number, _)| *number == cpu).map(|(_, apic)| *apic);
        let known = apic.and_then(|apic| {
            self.machine.cpus().iter().find(|cpu| cpu.hardware_id == apic && cpu.is_placed)
        });
        known.map(|cpu| cpu.node).ok_or(format!("SRAT: no domain has CPU {cpu}"))
    }
}

/// Numbers of CPUs and of their APICs, out of `/proc/cpuinfo`.
fn apics(cpuinfo: &str) -> Vec<(u64, u64)> {
    let mut cpus = Vec::new();
    let mut cpu = None;
    for (key, value) in cpuinfo.lines().filter_map(|line| line.split_once(':')) {
        match (key.trim(), value.trim().parse().ok(), cpu) {
            ("processor", number, _) => cpu = number,
            ("apicid", Some(apic), Some(cpu)) => cpus.push((cpu, apic)),
            _ => {}
        }
    }
    cpus
}

#[cfg(test)]
pub mod tests {
    use std::ops::Range;

    use serde_json::json;

    use super::*;

    /// A table with entries behind a header of so many bytes.
    fn table(header: usize, entries: &[Vec<u8>]) -> Vec<u8> {
        [vec![0; header], entries.concat()].concat()
    }

    /// Firmware of domains: their memory, and the APIC of their CPU. The kernel's CPU 0 has the last APIC.
    pub fn firmware(domains: &[(Range<u64>, u8)]) -> Firmware {
        let (mut madt, mut srat, mut cpuinfo) = (Vec::new(), Vec::new(), String::new());
        for (domain, (memory, apic)) in domains.iter().enumerate() {
            let (domain, apic) = (domain as u8, *apic);
            let mut entry = vec![1, 40, domain, 0, 0, 0, 0, 0];
            entry.extend(memory.start.to_le_bytes());
            entry.extend((memory.end - memory.start).to_le_bytes());
            entry.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            srat.push(entry);
            madt.push(vec![0, 8, 0, apic, 1, 0, 0, 0]);
            srat.push(vec![0, 16, domain, apic, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        for (cpu, (_, apic)) in domains.iter().rev().enumerate() {
            cpuinfo += &format!(
                "processor\t: {cpu}\nmodel name\t: x: y\napicid\t\t: {apic}\ninitial apicid\t: 77\n\n"
            );
        }
        Firmware::read(&table(44, &madt), &table(48, &srat), &cpuinfo).unwrap()
    }

    #[test]
    fn nodes_are_told_apart_by_addresses_and_cpus_alone() {
        // Twins, and a node without memory: nothing but the tables tells which is which.
        let firmware = firmware(&[(0..1 << 30, 0), (1 << 30..2 << 30, 4), (0..0, 6)]);
        let zone = |start: u64, spanned: u64| json!({"present": 1, "start_pfn": start, "spanned": spanned});
        let domain = |node: Value| firmware.domain(&node, 4096).map(|domain| domain.0);
        assert_eq!(domain(json!({"zones": [zone(1, 4095)], "cpus": [2]})), Ok(0));
        assert_eq!(domain(json!({"zones": [zone(1 << 18, 1 << 18)], "cpus": [1]})), Ok(1));
        let unused = json!({"present": 0, "start_pfn": 0, "spanned": 0});
        assert_eq!(domain(json!({"zones": [unused], "cpus": [0]})), Ok(2));
        // The other's CPU, a zone that reaches into another's memory, memory and CPUs that no table has, and nothing at all.
        for wrong in [
            json!({"zones": [zone(1, 4095)], "cpus": [1]}),
            json!({"zones": [zone(1, 1 << 18)], "cpus": []}),
            json!({"zones": [zone(2 << 18, 1)], "cpus": []}),
            json!({"zones": [], "cpus": [3]}),
            json!({"zones": [], "cpus": []}),
        ] {
            assert!(domain(wrong).is_err_and(|error| error.contains("SRAT: ")));
        }
    }

    #[test]
    fn tables_that_mislead_are_refused() {
        let refused = |srat: &[u8]| Firmware::read(&table(44, &[]), srat, "").err().unwrap();
        assert_eq!(refused(&[0; 8]), "firmware: SRAT ends after 8 bytes");
        let cpu = vec![0, 16, 0, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let told = refused(&table(48, &[cpu]));
        assert_eq!(told, "firmware: SRAT places CPU 0x5, which is not there");
    }
}
