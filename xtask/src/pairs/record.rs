//! Recordings of both sides: in a guest, or on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::judge::{FIGURES, Figures};
use super::list::{HOST, NODES, Pair, Setting, Side};
use super::{PairsError, file};
use crate::record::architecture::Architecture;
use crate::record::topology::Topology;
use crate::record::{Recorder, kernel, small};
use crate::step;

const ARCHITECTURE: Architecture = Architecture::X86_64;
/// A guest with emulated processors needs minutes.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// Bytes of a page.
const PAGE: f64 = 4096.0;

/// Where pairs are recorded, and with what.
pub struct Machines<'a> {
    recorder: Recorder,
    folder: &'a Path,
    kernels: Option<&'a Path>,
}

impl<'a> Machines<'a> {
    /// Builds what records.
    ///
    /// # Errors
    ///
    /// It is not built.
    pub fn new(folder: &'a Path, kernels: Option<&'a Path>) -> Result<Machines<'a>, PairsError> {
        let recorder = Recorder::build(ARCHITECTURE)?;
        Ok(Machines { recorder, folder, kernels })
    }

    /// A recording, which is made if it is not there: of the kernel's defaults, or of the pair's setting.
    pub fn bundle(&self, pair: &Pair, side: Side, time: u32) -> Result<PathBuf, PairsError> {
        let name = match side {
            Side::A => format!("{}-{time}", pair.load_name()),
            Side::B => format!("{}-{time}", pair.name()),
        };
        let path = self.folder.join(format!("{name}.tar.zst"));
        if path.is_file() {
            return Ok(path);
        }
        let partial = self.folder.join(format!("partial-{name}.tar.zst"));
        match pair.kernel {
            HOST => self.record_here(pair, side, &partial)?,
            version => {
                let kernel = kernel::find(version, ARCHITECTURE, self.kernels)?;
                let topology = guest(pair, side);
                let bundle = self.recorder.record(&topology, kernel, &name, TIMEOUT)?;
                fs::write(&partial, bundle).map_err(file(&partial))?;
            }
        }
        small::check(&fs::read(&partial).map_err(file(&partial))?)?;
        fs::rename(&partial, &path).map_err(file(&path))?;
        Ok(path)
    }

    /// Records on this machine, whose setting is changed for that long: the shell takes it back however the recorder ends.
    fn record_here(&self, pair: &Pair, side: Side, output: &Path) -> Result<(), PairsError> {
        const SCRIPT: &str = "\
            file=$1 value=$2; shift 2
            before=$(cat \"$file\") || exit 1
            trap 'echo \"$before\" > \"$file\"' EXIT
            trap 'exit 1' HUP INT TERM
            echo \"$value\" > \"$file\" && \"$@\"";
        let Setting::Known(key) = pair.setting else {
            return Err(PairsError::Host("only sysctls are changed on this machine"));
        };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if !release.starts_with("6.18.") {
            return Err(PairsError::Host("this machine has another kernel than 6.18"));
        }
        if !step::is_root() {
            return Err(PairsError::Host("recording on this machine needs root"));
        }
        let steps = self.folder.join("load");
        fs::write(&steps, pair.load.steps.join("\n")).map_err(file(&steps))?;
        let setting = format!("/proc/sys/{}", key.replace('.', "/"));
        // Of A it is written as it is: both sides do the same.
        let value = match side {
            Side::A => fs::read_to_string(&setting).map_err(file(Path::new(&setting)))?,
            Side::B => pair.b.into(),
        };
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", &setting, value.trim()]);
        command.arg(&self.recorder.nearpage).args(["--quiet", "record", "--output"]);
        command.arg(output).arg("--").arg(&self.recorder.guest).arg("load").arg(&steps);
        step::output("a recording of this machine", &mut command)?;
        Ok(())
    }

    /// The figures of a recording, with what is predicted of another value; and its kernel.
    pub fn ask(
        &self,
        pair: &Pair,
        bundle: &Path,
        side: Side,
    ) -> Result<(Figures, String), PairsError> {
        let wrong = |wanted| PairsError::Printed { program: "nearpage whatif", wanted };
        let mut command = Command::new(&self.recorder.nearpage);
        command.args(["whatif", "--json", "--starts", "2"]).arg(bundle);
        match (side, pair.setting) {
            (Side::A, Setting::Known(key)) => {
                command.args(["--change", &format!("{key}={}", pair.b)])
            }
            // Of B only what was recorded counts. What the model lacks it predicts to change nothing.
            _ => command.args(["--rules", "auto"]),
        };
        let text = step::output("nearpage whatif", &mut command)?;
        let told: Value = serde_json::from_str(&text).map_err(|_| wrong("JSON"))?;
        let figures = |totals: &Value| -> Result<Vec<f64>, PairsError> {
            let figure = |(key, _): &(&str, &str)| {
                let unit = if *key == "cached_bytes" { PAGE } else { 1.0 };
                totals[*key].as_f64().map(|figure| figure / unit).ok_or_else(|| wrong("totals"))
            };
            FIGURES.iter().map(figure).collect()
        };
        let (recorded, now) = (figures(&told["recorded"])?, figures(&told["now"])?);
        let then = figures(&told["then"][0]["totals"])?;
        let kernel = told["kernel"].as_str().ok_or_else(|| wrong("kernel"))?;
        Ok((Figures { recorded, now, then }, kernel.to_owned()))
    }
}

/// A guest with the kernel's defaults or with the pair's setting.
fn guest(pair: &Pair, side: Side) -> Topology {
    let nodes = NODES.map(|(mem, cpus)| json!({"mem": mem, "cpus": cpus}));
    let mut sysctl = json!({});
    if let (Side::B, Setting::Known(key) | Setting::Unknown(key)) = (side, pair.setting) {
        sysctl[key] = pair.b.into();
    }
    // With huge pages khugepaged raises min_free_kbytes. So only that pair has them.
    let has_huge = pair.setting == Setting::HugePages && side == Side::A;
    let huge = if has_huge { "always" } else { "never" };
    // Where processors are emulated and shared, the check of the timer may fail by chance, and the kernel panics.
    let words = format!("no_timer_check transparent_hugepage={huge}");
    let steps = pair.load.steps;
    let spec = json!({"nodes": nodes, "cmdline": words, "sysctl": sysctl, "load": steps});
    Topology::parse(&spec.to_string()).expect("all pairs are machines")
}
