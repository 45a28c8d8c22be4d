//! What the environment says.
//!
//! | variable | value | meaning |
//! |---|---|---|
//! | `NEARPAGE_NUMA` | `off` | one node with all CPUs and memory, as the kernel's `numa=off` |
//! | | `fake=N` | this machine as N emulated nodes of equal shares, as the kernel's `numa=fake=N` |
//! | | `topology=PATH` | the emulated nodes of a file in the [short form](nearpage_machine::short_form) |
//! | | `bind=strict`, `bind=advisory`, `bind=none` | the [`BindMode`] |
//! | | `strict`, `advisory`, `no-binding` | the same, in the words of tcmalloc |
//! | `NEARPAGE_RSEQ` | `auto` | restartable sequences where there are some |
//! | | `off` | the locked storage |
//! | `NEARPAGE_ENV` | `strict` | what would only be told and ignored is an error |
//!
//! `NEARPAGE_NUMA` may have several items with commas between them, so a path in it has none. An empty
//! variable is as good as none. What cannot be understood is told once on standard error and ignored. The variables of
//! nearpage's own tests are left to these.
//!
//! A topology file names the CPUs of this machine by their ids. It may name others too, where nobody
//! runs, and leave some out; both are told. A size of 0 makes a node memoryless, and other sizes count
//! for nothing: a memory has sizes of its own.

mod error;
mod machine;
mod numa;
mod warning;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::num::NonZeroU16;
use std::sync::Once;

use crate::numa::BindMode;
use crate::tell::tell;
use nearpage_machine::shown;

pub use error::{EnvironmentError, TopologyNote};
pub use warning::Warning;

const PREFIX: &str = "NEARPAGE_";
const NUMA: &str = "NEARPAGE_NUMA";
const RSEQ: &str = "NEARPAGE_RSEQ";
const ENV: &str = "NEARPAGE_ENV";
/// What only nearpage's own tests read.
const OF_TESTS: [&str; 15] = [
    "NEARPAGE_BUNDLES",
    "NEARPAGE_FORKS",
    "NEARPAGE_FUZZ_SECONDS",
    "NEARPAGE_FUZZ_SEED",
    "NEARPAGE_HOTPLUG_SECONDS",
    "NEARPAGE_LOOM_CANARY",
    "NEARPAGE_OBJECTS",
    "NEARPAGE_ORACLE",
    "NEARPAGE_OVERCOMMIT",
    "NEARPAGE_SCHEDULES",
    "NEARPAGE_SEED",
    "NEARPAGE_SEEDS",
    "NEARPAGE_STRESS_SECONDS",
    "NEARPAGE_TEST_CANARY",
    "NEARPAGE_TRACE_BYTES",
];

/// What the environment says; nothing of it is the default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment {
    /// Whether pagesets use restartable sequences.
    pub use_rseq: Option<bool>,
    /// How memory is bound to its node.
    pub bind: Option<BindMode>,
    /// Which nodes there are.
    pub nodes: Nodes,
    /// Whether a [`Warning`] is an error.
    pub strict: bool,
}

/// Which nodes there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Nodes {
    /// Those of the kernel.
    #[default]
    Kernel,
    /// Emulated ones: this many equal shares of this machine.
    Shares(NonZeroU16),
    /// Emulated ones: those that the file at this path describes.
    File(String),
}

impl fmt::Display for Nodes {
    /// The item of `NEARPAGE_NUMA` that asks for them; nothing for those of the kernel.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nodes::Kernel => Ok(()),
            Nodes::Shares(NonZeroU16::MIN) => f.write_str("off"),
            Nodes::Shares(count) => write!(f, "fake={count}"),
            Nodes::File(path) => write!(f, "topology={}", shown(path)),
        }
    }
}

impl Environment {
    /// Reads the variables of this process. Warnings are told on standard error, once in its life.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError::Strict`] if there are warnings, with `NEARPAGE_ENV=strict`.
    pub fn read() -> Result<Environment, EnvironmentError> {
        static TOLD: Once = Once::new();
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        let (environment, warnings) = Self::parse(variables);
        let warnings = environment.check(warnings)?;
        tell_once(&TOLD, warnings.iter().map(|warning| format!("{warning}; ignored")));
        Ok(environment)
    }

    /// Reads names and values of variables, whatever their order; others than nearpage's do not count.
    pub fn parse(variables: impl Iterator<Item = (String, String)>) -> (Environment, Vec<Warning>) {
        let mut environment = Environment::default();
        let mut warnings = Vec::new();
        for (name, value) in variables.filter(|(name, _)| name.starts_with(PREFIX)) {
            let value = value.trim();
            match name.as_str() {
                _ if value.is_empty() => {}
                NUMA => numa::parse(value, &mut environment, &mut warnings),
                RSEQ => match value {
                    "auto" => {}
                    "off" => environment.use_rseq = Some(false),
                    _ => warnings.push(Warning::word(RSEQ, value, ["auto", "off"], "auto or off")),
                },
                ENV => match value {
                    "strict" => environment.strict = true,
                    _ => warnings.push(Warning::word(ENV, value, ["strict"], "strict")),
                },
                name if OF_TESTS.contains(&name) => {}
                _ => warnings.push(Warning::unknown_variable(&name)),
            }
        }
        (environment, warnings)
    }

    /// The warnings, if they are not errors.
    fn check(&self, warnings: Vec<Warning>) -> Result<Vec<Warning>, EnvironmentError> {
        if self.strict && !warnings.is_empty() {
            return Err(EnvironmentError::Strict { warnings });
        }
        Ok(warnings)
    }
}

/// Writes lines on standard error, unless some were written before.
fn tell_once(told: &Once, lines: impl IntoIterator<Item = impl Display>) {
    let mut lines = lines.into_iter().peekable();
    if lines.peek().is_some() {
        told.call_once(|| lines.for_each(tell));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn parse(variables: &[(&str, &str)]) -> (Environment, Vec<String>) {
        let owned = variables.iter().map(|&(name, value)| (name.into(), value.into()));
        let (environment, warnings) = Environment::parse(owned);
        (environment, warnings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nothing_said_is_the_default() {
        let unset = (Environment::default(), vec![]);
        assert_eq!(parse(&[]), unset);
        assert_eq!(parse(&[("PATH", "/bin"), ("NEARPAGE", "x"), ("RSEQ", "off")]), unset);
        let empty = [
            ("NEARPAGE_NUMA", ""),
            ("NEARPAGE_RSEQ", " "),
            ("NEARPAGE_ENV", ""),
            ("NEARPAGE_X", ""),
        ];
        assert_eq!(parse(&empty), unset);
        assert_eq!(parse(&[("NEARPAGE_RSEQ", "auto")]), unset);
    }

    #[test]
    fn all_variables() {
        let (environment, warnings) = parse(&[
            ("NEARPAGE_RSEQ", "off"),
            ("NEARPAGE_NUMA", "fake=3,bind=none"),
            ("NEARPAGE_ENV", "strict"),
        ]);
        let expected = Environment {
            use_rseq: Some(false),
            bind: Some(BindMode::None),
            nodes: Nodes::Shares(NonZeroU16::new(3).unwrap()),
            strict: true,
        };
        assert_eq!((environment, warnings), (expected, vec![]));
    }

    #[test]
    fn nodes_are_written_as_they_are_asked_for() {
        for item in ["", "off", "fake=2", "fake=1024", "topology=/tmp/lab.numa"] {
            let (environment, warnings) = parse(&[("NEARPAGE_NUMA", item)]);
            assert_eq!((environment.nodes.to_string(), warnings), (item.into(), vec![]));
        }
    }

    #[test]
    fn values_that_are_not_understood() {
        assert_eq!(
            parse(&[("NEARPAGE_RSEQ", "on"), ("NEARPAGE_ENV", "lax")]),
            (
                Environment::default(),
                vec![
                    "NEARPAGE_RSEQ: found \"on\", expected auto or off".into(),
                    "NEARPAGE_ENV: found \"lax\", expected strict".into(),
                ]
            )
        );
    }

    #[test]
    fn values_that_are_nearly_right() {
        let hinted = |variable: &str, value: &str| parse(&[(variable, value)]).1;
        assert_eq!(
            hinted("NEARPAGE_RSEQ", "OFF"),
            ["NEARPAGE_RSEQ: found \"OFF\" (did you mean off?), expected auto or off"]
        );
        assert_eq!(
            hinted("NEARPAGE_ENV", "Strict"),
            ["NEARPAGE_ENV: found \"Strict\" (did you mean strict?), expected strict"]
        );
    }

    #[test]
    fn variables_that_are_not_understood() {
        let (environment, warnings) =
            parse(&[("NEARPAGE_NMUA", "fake=2"), ("NEARPAGE_rseq", "off"), ("NEARPAGE_CONF", "a")]);
        assert_eq!(environment, Environment::default());
        let expected = "expected NEARPAGE_ENV, NEARPAGE_NUMA or NEARPAGE_RSEQ";
        assert_eq!(
            warnings,
            [
                format!(
                    "NEARPAGE_NMUA: there is no such variable (did you mean NEARPAGE_NUMA?), {expected}"
                ),
                format!(
                    "NEARPAGE_rseq: there is no such variable (did you mean NEARPAGE_RSEQ?), {expected}"
                ),
                format!("NEARPAGE_CONF: there is no such variable, {expected}"),
            ]
        );
    }

    /// Adds the variables that the sources in a folder, with folders in it, read.
    fn read_by(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_by(&path, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let reads = ["var(", "var_os(", "number(", "&str = "];
                let after =
                    |read| text.split(read).skip(1).filter_map(|rest| rest.split('"').nth(1));
                let named = |rest: &&str| rest.starts_with(PREFIX);
                names.extend(reads.into_iter().flat_map(after).filter(named).map(String::from));
            }
        }
    }

    #[test]
    fn variables_of_tests_are_left_to_them() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut read = BTreeSet::new();
        for name in ["nearpage", "nearpage-sim", "nearpage-linux", "nearpage-cli"] {
            read_by(&crates.join(name).join("tests"), &mut read);
        }
        assert_eq!(read.iter().map(String::as_str).collect::<Vec<_>>(), OF_TESTS);
        let set: Vec<(&str, &str)> = OF_TESTS.iter().map(|name| (*name, "1")).collect();
        assert_eq!(parse(&set), (Environment::default(), vec![]));
        assert_eq!(parse(&[("NEARPAGE_FORK", "1")]).1.len(), 1);
    }

    #[test]
    fn strict_makes_warnings_errors_wherever_it_stands() {
        let variables = [("NEARPAGE_RSEQ", "on"), ("NEARPAGE_X", "1"), ("NEARPAGE_ENV", "strict")];
        let owned = variables.map(|(name, value)| (name.into(), value.into()));
        let (environment, warnings) = Environment::parse(owned.into_iter());
        assert_eq!(
            environment.check(warnings.clone()).unwrap_err().to_string(),
            "NEARPAGE_RSEQ: found \"on\", expected auto or off; \
             NEARPAGE_X: there is no such variable, \
             expected NEARPAGE_ENV, NEARPAGE_NUMA or NEARPAGE_RSEQ; \
             NEARPAGE_ENV=strict makes this an error"
        );
        assert_eq!(environment.check(vec![]).unwrap(), []);
        assert_eq!(Environment::default().check(warnings.clone()).unwrap(), warnings);
    }

    /// Also the body of the process that [`told_once_by_a_process`] starts with other variables.
    #[test]
    fn read_twice() {
        for _ in 0..2 {
            let environment = Environment::read().unwrap();
            environment.machine().unwrap();
        }
    }

    #[test]
    fn told_once_by_a_process() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "--numa 1G,cpus=70000").unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "environment::tests::read_twice", "--nocapture"])
            .env("NEARPAGE_NUMA", format!("topology={}", file.path().display()))
            .env("NEARPAGE_RSEQ", "on")
            .output()
            .unwrap();
        let told = String::from_utf8(child.stderr).unwrap();
        assert!(child.status.success(), "{told}");
        let count = |line: &str| told.lines().filter(|told| told.contains(line)).count();
        let warning = "nearpage: NEARPAGE_RSEQ: found \"on\", expected auto or off; ignored";
        assert_eq!(count(warning), 1, "{told}");
        assert_eq!(count("so that nobody runs there: 70000"), 1, "{told}");
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(
            variable in "NEARPAGE_(NUMA|RSEQ|ENV|\\PC{0,6})",
            value in "\\PC{0,30}|((fake|topology|bind|off|strict|advisory)[=,0-9a-z]{0,6}){0,4}",
        ) {
            let (_, warnings) = Environment::parse([(variable, value)].into_iter());
            for warning in warnings {
                prop_assert!(warning.to_string().contains(", expected "));
            }
        }
    }
}
