//! What a result was measured on.

use std::fs;

use serde::Serialize;

use crate::nearpage;

/// The machine, and the program that ran on it.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// As `/proc/cpuinfo` names it.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Name, release and architecture of the kernel.
    pub kernel: String,
    /// Mean number of running threads in the minute before: above 0 means that others were at work.
    pub load: Option<f64>,
    /// The compiler of the Rust code.
    pub rustc: &'static str,
    /// What was built, if it was built from a repository.
    pub commit: Option<&'static str>,
    /// nearpage's pageset storage.
    pub storage: Option<&'static str>,
}

impl Machine {
    /// Asks this machine.
    pub fn this() -> Machine {
        let uname = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Machine {
            cpu: fs::read_to_string("/proc/cpuinfo")
                .map_or_else(|_| unknown(), |text| cpu_model(&text)),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: [uname.sysname(), uname.release(), uname.machine()].map(part).join(" "),
            load: fs::read_to_string("/proc/loadavg").ok().as_deref().and_then(first_number),
            rustc: env!("PEERS_RUSTC"),
            commit: option_env!("PEERS_COMMIT"),
            storage: nearpage::storage(),
        }
    }
}

fn first_number(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// Not all architectures have a line with the model.
fn cpu_model(cpuinfo: &str) -> String {
    let model = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    };
    cpuinfo.lines().find_map(model).unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_the_first_model_name() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name\t: x\n";
        assert_eq!(cpu_model(cpuinfo), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model("CPU implementer\t: 0x41\n"), "unknown");
    }

    #[test]
    fn load_is_that_of_the_last_minute() {
        assert_eq!(first_number("0.25 1.50 3.00 1/120 4711\n"), Some(0.25));
        assert_eq!(first_number(""), None);
    }
}
