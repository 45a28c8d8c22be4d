//! Reading the variables.

use std::ffi::OsString;

use super::asked::Environment;
use super::error::EnvironmentError;
use super::misread::{misread_word, unknown_variable};
use super::names::{ENV, NUMA, OF_TESTS, PREFIX, RSEQ, STATS};
use super::numa;

impl Environment {
    /// Reads the variables of this process. Those of a program with more rights than who started it (setuid, setgid,
    /// capabilities of its file) are somebody else's: none is read.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError::Strict`] if a value is not understood and `NEARPAGE_ENV` is `strict`.
    pub fn from_env() -> Result<Environment, EnvironmentError> {
        // SAFETY: asks the kernel's vector of this process, which is there from its start.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return Ok(Environment::default());
        }
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Self::from_variables(variables)
    }

    /// Reads variables from names and values, in any order. Names that do not begin with `NEARPAGE_` are ignored.
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Environment, EnvironmentError> {
        let mut environment = Environment::default();
        for (name, value) in variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            environment.read_variable(&name, value.trim());
        }
        if environment.strict && !environment.ignored.is_empty() {
            return Err(EnvironmentError::Strict { warnings: environment.ignored });
        }
        Ok(environment)
    }

    fn read_variable(&mut self, name: &str, value: &str) {
        match name {
            _ if value.is_empty() => {}
            NUMA => numa::parse(value, self),
            RSEQ => match value {
                "auto" => {}
                "off" => self.use_rseq = Some(false),
                _ => self.ignored.push(misread_word(RSEQ, value, ["auto", "off"], "auto or off")),
            },
            ENV => match value {
                "strict" => self.strict = true,
                _ => self.ignored.push(misread_word(ENV, value, ["strict"], "strict")),
            },
            STATS => self.stats = Some(value.replace("%p", &std::process::id().to_string())),
            name if OF_TESTS.contains(&name) => {}
            name => self.ignored.push(unknown_variable(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::num::NonZeroU16;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::Nodes;
    use super::*;
    use crate::bind::BindMode;
    use crate::{Memory, Warning};

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        let owned = variables.iter().map(|&(name, value)| (name.into(), value.into()));
        Environment::from_variables(owned)
    }

    /// What variables ask for, and what of them is not understood.
    fn parse(variables: &[(&str, &str)]) -> (Environment, Vec<String>) {
        let environment = read(variables).unwrap();
        let ignored = environment.ignored.iter().map(ToString::to_string).collect();
        (Environment { ignored: Vec::new(), ..environment }, ignored)
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
            ("NEARPAGE_STATS", "/run/x.%p"),
        ]);
        let expected = Environment {
            use_rseq: Some(false),
            bind: Some(BindMode::None),
            nodes: Nodes::Shares(NonZeroU16::new(3).unwrap()),
            strict: true,
            stats: Some(format!("/run/x.{}", std::process::id())),
            ignored: Vec::new(),
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
        let expected = "expected NEARPAGE_ENV, NEARPAGE_NUMA, NEARPAGE_RSEQ or NEARPAGE_STATS";
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
        let folders =
            fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("tests"));
        folders.filter(|folder| folder.is_dir()).for_each(|folder| read_by(&folder, &mut read));
        assert_eq!(read.iter().map(String::as_str).collect::<Vec<_>>(), OF_TESTS);
        let set: Vec<(&str, &str)> = OF_TESTS.iter().map(|name| (*name, "1")).collect();
        assert_eq!(parse(&set), (Environment::default(), vec![]));
        assert_eq!(parse(&[("NEARPAGE_FORK", "1")]).1.len(), 1);
    }

    #[test]
    fn strict_makes_warnings_errors_wherever_it_stands() {
        let wrong = [("NEARPAGE_RSEQ", "on"), ("NEARPAGE_X", "1"), ("NEARPAGE_ENV", "strict")];
        assert_eq!(
            read(&wrong).unwrap_err().to_string(),
            "NEARPAGE_RSEQ: found \"on\", expected auto or off; \
             NEARPAGE_X: there is no such variable, \
             expected NEARPAGE_ENV, NEARPAGE_NUMA, NEARPAGE_RSEQ or NEARPAGE_STATS; \
             NEARPAGE_ENV=strict makes this an error"
        );
        assert!(read(&wrong[2..]).unwrap().strict);
        assert_eq!(read(&wrong[..2]).unwrap().ignored.len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_a_warning_of_each_memory() {
        let environment = read(&[("NEARPAGE_RSEQ", "on")]).unwrap();
        let builder = Memory::builder().environment(environment.clone()).bytes_per_node(1 << 20);
        let told = "NEARPAGE_RSEQ: found \"on\", expected auto or off; ignored";
        let memory = builder.build().unwrap();
        assert!(memory.warnings().iter().any(|warning| warning.to_string() == told));
        let of_environment = environment.warnings();
        assert_eq!(of_environment.iter().map(Warning::to_string).collect::<Vec<_>>(), [told]);
    }

    #[test]
    fn cpus_of_a_topology_file_that_are_not_there_are_a_warning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "--numa 1G,cpus=70000").unwrap();
        let value = format!("topology={}", file.path().display());
        let environment = read(&[("NEARPAGE_NUMA", &value)]).unwrap();
        let told = environment.warnings()[0].to_string();
        assert!(told.ends_with("so that nobody runs there: 70000"), "{told}");
        let memory = Memory::builder().environment(environment.clone()).bytes_per_node(1 << 20);
        assert_eq!(memory.build().unwrap().warnings(), environment.warnings());
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_refused(
            variable in "NEARPAGE_(NUMA|RSEQ|ENV|\\PC{0,6})",
            value in "\\PC{0,30}|((fake|topology|bind|off|strict|advisory)[=,0-9a-z]{0,6}){0,4}",
        ) {
            let environment = match Environment::from_variables([(variable, value)]) {
                Ok(environment) => environment,
                Err(error) => panic!("{error}"),
            };
            for warning in environment.ignored {
                prop_assert!(warning.to_string().contains(", expected "));
            }
        }
    }
}
