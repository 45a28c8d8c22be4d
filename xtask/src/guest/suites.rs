//! The host's test suites in a machine: the tests that run there by their names, and the verdict on what a suite printed.
//!
//! A suite is given the names, and no others run. It prints `test NAME ... ok`, and after all tests what each of them printed
//! (`---- NAME stdout ----`), in which a test says that it was skipped.

use std::collections::HashMap;

use super::names;

/// A suite of tests.
#[derive(Debug)]
pub struct Suite {
    /// The program's name.
    pub name: &'static str,
    /// Tests that run in the machines.
    tests: &'static [&'static str],
    /// Those that run in none, and why.
    left_out: &'static [(&'static str, &'static str)],
}

pub static THREADS: Suite = Suite {
    name: "threads",
    tests: names::THREADS,
    left_out: &[
        ("canaries::child", "nothing of its own: what the other one starts"),
        (
            "canaries::sound_storages_pass_and_broken_ones_do_not",
            "in its stresses of a second broken storages must fail: emulated, they get too little done",
        ),
    ],
};
pub static MEMORY: Suite = Suite { name: "memory", tests: names::MEMORY, left_out: &[] };
pub static SLAB: Suite = Suite { name: "slab", tests: names::SLAB, left_out: &[] };

/// All suites.
pub static SUITES: [&Suite; 3] = [&THREADS, &MEMORY, &SLAB];

/// What runs of a suite.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The name under which it is sent.
    pub name: &'static str,
    /// The suite.
    pub suite: &'static Suite,
    /// The modules of tests that run. If none is named, all do.
    pub modules: &'static [&'static str],
}

impl Part {
    /// All tests of a suite that run in machines.
    pub const fn whole(suite: &'static Suite) -> Part {
        Part { name: suite.name, suite, modules: &[] }
    }

    /// The names of its tests.
    fn tests(&self) -> impl Iterator<Item = &'static str> {
        let modules = self.modules;
        let tests = self.suite.tests.iter().copied();
        tests.filter(move |test| modules.is_empty() || modules.contains(&module(test).0))
    }

    /// The program and its words.
    pub fn command(&self) -> String {
        let tests: Vec<&str> = self.tests().collect();
        format!("/{} --exact {} --test-threads=1 --show-output", self.suite.name, tests.join(" "))
    }

    /// Whether each of its tests ran and passed, of how the suite ended and what it printed: all names, a line a module.
    ///
    /// # Errors
    ///
    /// The tests that did not, and how.
    pub fn judge(&self, end: &str, printed: &str) -> Result<Vec<String>, String> {
        let told = Told::read(printed);
        let problem = |test| told.problem(test).map(|problem| format!("{test} {problem}"));
        let wrong: Vec<String> = self.tests().filter_map(problem).collect();
        let count = self.tests().count();
        if !wrong.is_empty() || end != "exit 0" || count == 0 {
            let wrong: String = wrong.iter().map(|line| format!("\n    {line}")).collect();
            let lines: Vec<&str> = printed.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n    ");
            return Err(format!(
                "{} ({end}): of {count} tests of the suite {} not all passed:{wrong}\nit printed last:\n    {last}",
                self.name, self.suite.name
            ));
        }
        let mut lines = vec![format!("{}: {count} tests passed, by name", self.name)];
        let tests: Vec<(&str, &str)> = self.tests().map(module).collect();
        for group in tests.chunk_by(|one, next| one.0 == next.0) {
            let names: Vec<&str> = group.iter().map(|(_, name)| *name).collect();
            lines.push(format!("{}: {}: {}", self.name, group[0].0, names.join(", ")));
        }
        let left_out = self.suite.left_out.iter().filter(|_| self.modules.is_empty());
        lines.extend(left_out.map(|(test, why)| format!("{}: without {test}: {why}", self.name)));
        Ok(lines)
    }
}

/// Module and name of a test.
fn module(test: &str) -> (&str, &str) {
    test.split_once("::").unwrap_or(("", test))
}

/// What a suite told of its tests.
struct Told<'a> {
    /// What came of each test that began; empty for one that did not end.
    results: HashMap<&'a str, &'a str>,
    /// Why a test was skipped, by its name.
    skipped: HashMap<&'a str, &'a str>,
    /// Whether the suite came to its end.
    is_whole: bool,
}

impl<'a> Told<'a> {
    fn read(printed: &'a str) -> Self {
        let mut told = Told { results: HashMap::new(), skipped: HashMap::new(), is_whole: false };
        let mut lines = printed.lines();
        let mut running = None;
        // What tests printed comes later, other tests' lines among it: some start this program again.
        for line in lines.by_ref().take_while(|line| !["successes:", "failures:"].contains(line)) {
            let began = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "));
            let result = match began {
                Some((test, result)) => {
                    let test = test.strip_suffix(" - should panic").unwrap_or(test);
                    running = Some(test);
                    told.results.insert(test, "");
                    result
                }
                None => line,
            };
            // A child's words may stand between a name and its result.
            let is_result = ["ok", "FAILED"].contains(&result) || result.starts_with("ignored");
            if let Some(test) = running.filter(|_| is_result) {
                told.results.insert(test, result);
                running = None;
            }
            told.is_whole |= line.starts_with("test result: ");
        }
        let mut of = None;
        for line in lines {
            let head =
                line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
            of = head.or(of);
            if let Some(test) = of.filter(|_| line.starts_with("skipped")) {
                told.skipped.insert(test, line);
            }
            told.is_whole |= line.starts_with("test result: ");
        }
        told
    }

    /// What is wrong with a test.
    fn problem(&self, test: &str) -> Option<String> {
        Some(match (self.results.get(test), self.skipped.get(test)) {
            (Some(&"ok"), None) => return None,
            (Some(&"ok"), Some(why)) => format!("passed without having run: {why}"),
            (Some(&""), _) => "began, and did not end".into(),
            (Some(result), _) => format!("ended as {result}"),
            (None, _) if self.is_whole => {
                "did not run: the suite has no such test (xtask/src/guest/names.rs)".into()
            }
            (None, _) => "did not run: the suite broke off before".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    const PLANTED: Suite = Suite {
        name: "planted",
        tests: &["a::one", "a::two", "b::three"],
        left_out: &[("c::four", "it takes minutes")],
    };
    static SOME: Suite = PLANTED;
    const PASSED: &str = "\nrunning 3 tests\ntest a::one ... ok\ntest a::two ... a child's words\nok\ntest b::three - should panic ... ok\n\n\
        successes:\n\n---- a::one stdout ----\ntest a::two ... FAILED\ntest result: ok. 1 passed\n\n\nsuccesses:\n    a::one\n\n\
        test result: ok. 3 passed; 0 failed; 0 ignored\n";

    #[test]
    fn each_test_of_the_list_is_asked_for() {
        let all = Part::whole(&SOME);
        assert_eq!(
            all.command(),
            "/planted --exact a::one a::two b::three --test-threads=1 --show-output"
        );
        assert_eq!(
            all.judge("exit 0", PASSED).unwrap(),
            [
                "planted: 3 tests passed, by name",
                "planted: a: one, two",
                "planted: b: three",
                "planted: without c::four: it takes minutes",
            ]
        );
        // The canary: a test that is not there any more.
        let missing = PASSED.replace("test b::three - should panic ... ok\n", "");
        let told = all.judge("exit 0", &missing).unwrap_err();
        let head = told.split("\nit printed last").next().unwrap();
        assert_eq!(
            head,
            "planted (exit 0): of 3 tests of the suite planted not all passed:\n    \
             b::three did not run: the suite has no such test (xtask/src/guest/names.rs)"
        );
        let part = Part { name: "beside", modules: &["a"], ..all };
        assert!(part.command().starts_with("/planted --exact a::one a::two --test"));
        assert!(part.judge("exit 0", &missing).is_ok());
        // Nothing that could run is no success.
        assert!(Part { modules: &["c"], ..all }.judge("exit 0", PASSED).is_err());
    }

    #[test]
    fn what_did_not_pass_is_named() {
        let all = Part::whole(&SOME);
        let problem = |end, printed: &str, expected: &str| {
            let told = all.judge(end, printed).unwrap_err();
            let head = told.split("\nit printed last").next().unwrap();
            assert!(head.contains(expected), "{head}");
        };
        let failed = PASSED.replace("panic ... ok", "panic ... FAILED");
        problem("exit 101", &failed, "    b::three ended as FAILED");
        let ignored = PASSED.replace("panic ... ok", "panic ... ignored, why");
        problem("exit 0", &ignored, "    b::three ended as ignored, why");
        let cut = "running 3 tests\ntest a::one ... ok\ntest a::two ... ";
        problem(
            "signal 9",
            cut,
            "    a::two began, and did not end\n    b::three did not run: the suite broke off before",
        );
        problem("signal 9", "", "    a::one did not run: the suite broke off");
        let skipped = PASSED.replace("stdout ----\n", "stdout ----\nskipped: no sequences\n");
        problem("exit 0", &skipped, "    a::one passed without having run: skipped: no sequences");
        problem("exit 1", PASSED, "planted (exit 1): ");
    }

    #[test]
    fn the_lists_are_those_of_the_suites() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/nearpage-linux/tests");
        for suite in SUITES {
            let mut there = BTreeSet::new();
            for entry in fs::read_dir(tests.join(suite.name)).unwrap() {
                let path = entry.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                let module = path.file_stem().unwrap().to_string_lossy().into_owned();
                let after = text.split("#[test]\n").skip(1);
                let names = after.filter_map(|text| text.split_once("fn ")?.1.split_once('('));
                there.extend(names.map(|(name, _)| format!("{module}::{name}")));
            }
            let left_out = suite.left_out.iter().map(|(test, why)| {
                assert!(!why.is_empty(), "{test} is left out for no reason");
                *test
            });
            let known: Vec<&str> = suite.tests.iter().copied().chain(left_out).collect();
            let listed: BTreeSet<String> = known.iter().map(ToString::to_string).collect();
            assert_eq!(listed.len(), known.len(), "{}: a test is listed twice", suite.name);
            let differ: Vec<&String> = there.symmetric_difference(&listed).collect();
            assert!(
                differ.is_empty(),
                "{}: in the suite or in xtask/src/guest/, and not in both: {differ:?}",
                suite.name
            );
        }
    }
}
