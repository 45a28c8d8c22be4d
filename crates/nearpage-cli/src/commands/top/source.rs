//! What is watched: a machine, a copy, a process, or a recording.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use nearpage_doctor::{Facts, Finding, Level, findings};
use nearpage_machine::{FileTree, shown};
use nearpage_top::{Feed, Lines};
use nearpage_watch::{Pagesets, ProcessTree, Sample, Sampler, Tape, TapeWriter};

use super::{TopArgs, program};
use crate::commands::input::{self, STANDARD_INPUT};
use crate::commands::{CommandError, environment, vmcore, watched};
use crate::outputs::{Kind, Output};

/// Time for zoneinfo of a sample.
const ZONEINFO_BUDGET: Duration = Duration::from_micros(1500);
/// Time for processes of a sample, and of a text that is printed once.
const BUDGET: Duration = Duration::from_millis(3);
const BUDGET_ONCE: Duration = Duration::from_millis(400);
/// Processes of panes, and of streams and recordings.
const PROCESSES_OF_PANES: usize = 1000;
const PROCESSES: usize = 32;

/// What is watched.
pub(super) struct Source {
    name: String,
    from: From,
}

enum From {
    Sampler { sampler: Box<Sampler>, advice: Option<Advice>, program: Option<Rc<ProcessTree>> },
    Tape { tape: Box<Tape>, at: usize },
}

/// One connection for the machine's panes and the program's: a process that is silent is waited for once.
struct Shared(Rc<ProcessTree>);

impl FileTree for Shared {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read(path)
    }

    fn names(&self, path: &str) -> io::Result<Vec<String>> {
        self.0.names(path)
    }

    fn display(&self, path: &str) -> String {
        self.0.display(path)
    }
}

/// What doctor looks at.
enum Advice {
    ThisMachine,
    /// A copy does not change.
    Copy(Vec<String>),
}

impl Source {
    pub(super) fn open(arguments: &TopArgs, has_panes: bool) -> Result<Source, CommandError> {
        if let Some(path) = &arguments.play {
            let tape = Tape::open(path)?;
            let name = match tape.source() {
                "" => shown(path).to_string(),
                source => source.to_owned(),
            };
            return Ok(Source { name, from: From::Tape { tape: Box::new(tape), at: 0 } });
        }
        let path = arguments.other_machine();
        let name = match (path, &arguments.process) {
            (_, Some(process)) => format!("process {process}"),
            (None, None) => "this machine".to_owned(),
            (Some(path), _) if input::is_standard(path) => STANDARD_INPUT.to_owned(),
            (Some(path), _) => shown(path).to_string(),
        };
        if path.is_none() && arguments.capture.is_some() {
            return Err(CommandError::Usage("--capture is of a recording: name one".into()));
        }
        let program = arguments.process.as_deref().map(ProcessTree::open).transpose()?.map(Rc::new);
        let tree: Box<dyn FileTree> = match &program {
            Some(process) => Box::new(Shared(process.clone())),
            None => match &arguments.vmcore {
                Some(image) => Box::new(vmcore::tree(image)?),
                None => {
                    watched::tree(path, arguments.capture.as_deref(), &arguments.limit.budget())?
                }
            },
        };
        let advice = match (has_panes, path, &program) {
            (false, ..) | (_, _, Some(_)) => None,
            (true, None, None) => Some(Advice::ThisMachine),
            (true, Some(_), None) => Some(Advice::Copy(judged(&Facts::read(&*tree)))),
        };
        let sampler = Box::new(sampler(tree, arguments, has_panes));
        Ok(Source { name, from: From::Sampler { sampler, advice, program } })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_played(&self) -> bool {
        matches!(self.from, From::Tape { .. })
    }

    /// How many samples a stream has if nobody says: a copy is a moment.
    pub(super) fn samples(&self, arguments: &TopArgs) -> u64 {
        let is_copy = arguments.other_machine().is_some();
        if arguments.once || is_copy { 1 } else { u64::MAX }
    }

    /// Leaves out all samples of a recording but the last.
    pub(super) fn skip_to_last(&mut self) {
        if let From::Tape { tape, at } = &mut self.from {
            *at = tape.len() - 1;
        }
    }

    /// The sample before the next one.
    pub(super) fn before(&mut self) -> Option<Sample> {
        match &mut self.from {
            From::Tape { tape, at } => at.checked_sub(1).map(|at| tape.sample(at)),
            From::Sampler { .. } => None,
        }
    }

    pub(super) fn next(&mut self) -> Option<Sample> {
        match &mut self.from {
            From::Sampler { sampler, .. } => Some(sampler.sample()),
            From::Tape { tape, at } => {
                *at += 1;
                (*at <= tape.len()).then(|| tape.sample(*at - 1))
            }
        }
    }

    /// The same for panes.
    pub(super) fn feed(self, arguments: &TopArgs) -> Result<Feed, CommandError> {
        let (sampler, advice, program) = match self.from {
            From::Tape { tape, .. } => return Ok(Feed::play(*tape)),
            From::Sampler { sampler, advice, program } => (sampler, advice, program),
        };
        let writer = recorder(arguments, &self.name)?;
        let is_here = matches!(advice, Some(Advice::ThisMachine));
        let mut feed = Feed::live(*sampler);
        if is_here {
            feed = feed.with_traffic();
        }
        if let Some(advice) = advice {
            feed = feed.with_advice(advice.lines());
        }
        if let Some(tree) = program {
            feed = feed.with_program(Box::new(move || program::lines(&tree)));
        }
        Ok(match writer {
            Some(writer) => feed.recorded(writer),
            None => feed,
        })
    }
}

impl Advice {
    fn lines(self) -> Lines {
        match self {
            Advice::Copy(lines) => Box::new(move || lines.clone()),
            Advice::ThisMachine => Box::new(|| match environment::read() {
                Ok(environment) => judged(&Facts::of_this_machine(&environment)),
                Err(error) => vec![error.to_string()],
            }),
        }
    }
}

/// What doctor finds, problems first.
fn judged(facts: &Facts) -> Vec<String> {
    let found = findings(facts);
    let of = |level| found.iter().filter(move |finding| finding.level == level);
    let line = |word: &str, finding: &Finding| {
        let advice =
            finding.advice.as_ref().map_or(String::new(), |advice| format!(" -> {advice}"));
        format!("{word} {}: {}{advice}", finding.found, finding.meaning)
    };
    let problems = of(Level::Problem).map(|finding| line("problem", finding));
    let lines: Vec<String> =
        problems.chain(of(Level::Note).map(|finding| line("note", finding))).collect();
    if lines.is_empty() { vec!["no problem".into()] } else { lines }
}

fn sampler(tree: Box<dyn FileTree>, arguments: &TopArgs, has_panes: bool) -> Sampler {
    let pagesets = if has_panes { Pagesets::EachCpu } else { Pagesets::Sums };
    let sampler = Sampler::new(tree).with_budget(ZONEINFO_BUDGET).with_pagesets(pagesets);
    let most = match (arguments.processes, has_panes) {
        (Some(most), _) => most,
        (None, true) => PROCESSES_OF_PANES,
        (None, false) => PROCESSES,
    };
    // A process that is watched has no processes.
    if most == 0 || arguments.process.is_some() {
        return sampler;
    }
    sampler.with_processes(most, Some(if arguments.once { BUDGET_ONCE } else { BUDGET }))
}

/// Who records, if it was asked for.
pub(super) fn recorder(
    arguments: &TopArgs,
    name: &str,
) -> Result<Option<TapeWriter>, CommandError> {
    let open = |path| {
        let begun = Output::begun(Kind::Tape, path);
        let file = begun.and_then(|(_, file)| Ok(file.ok_or(io::ErrorKind::InvalidData)?));
        TapeWriter::on(file, path, arguments.record_size, name)
    };
    let writer = arguments.record.as_deref().map(open);
    Ok(writer.transpose()?)
}
