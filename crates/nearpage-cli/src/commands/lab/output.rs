//! Where reports go: text as they come, JSON or figures at the end, and a page.

use std::path::Path;

use nearpage_lab::{Report, Scenario, catalog, csv};
use nearpage_report::lab::page_of;
use nearpage_report::{MachineView, Origin};

use super::{CommandError, Entry, LabArgs, text};
use crate::commands::input::{is_standard, page_file};
use crate::commands::{print, print_json};
use crate::outputs;

/// Where they go.
#[derive(Debug)]
pub(super) struct Output {
    format: Format,
    page: Option<Page>,
}

/// How they are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// Each when it is done.
    Text,
    /// All at the end.
    Json,
    /// All at the end.
    Csv,
    /// All at the end, as a page.
    Page,
}

#[derive(Debug)]
struct Page {
    /// Standard output, if there is no file.
    file: Option<outputs::Output>,
    origin: Origin,
    machines: Vec<(String, Vec<(String, MachineView)>)>,
}

impl Output {
    /// As asked for.
    ///
    /// # Errors
    ///
    /// The page's file cannot be written, or two outputs want standard output.
    pub(super) fn of(arguments: &LabArgs, scenarios: &[Entry]) -> Result<Output, CommandError> {
        let mut format = match (arguments.json, arguments.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        };
        let Some(path) = arguments.report.as_deref() else {
            return Ok(Output { format, page: None });
        };
        let file = match is_standard(path) {
            false => Some(page_file(path, inputs(arguments, scenarios))?),
            true if format == Format::Text => {
                format = Format::Page;
                None
            }
            true => {
                let other = if arguments.json { "--json" } else { "--csv" };
                return Err(CommandError::Usage(format!(
                    "{other} and --report - both go to standard output: --report takes a PATH"
                )));
            }
        };
        let origin = Origin::new(std::env::args_os(), arguments.seed.to_string());
        let machines = scenarios.iter().filter_map(Entry::scenario).map(machines).collect();
        Ok(Output { format, page: Some(Page { file, origin, machines }) })
    }

    /// Says what one scenario came to, if that is said at once.
    pub(super) fn print_one(&self, report: &Report) -> Result<(), CommandError> {
        if self.format == Format::Text { print(&text::report(report)) } else { Ok(()) }
    }

    /// Writes the page, and prints what comes at the end, also if the page cannot be written. Without a report there is no
    /// page.
    pub(super) fn end(&self, reports: &[Report]) -> Result<(), CommandError> {
        let page = self.page.as_ref().filter(|_| !reports.is_empty());
        let page = page.map(|page| (&page.file, page_of(reports, &page.machines, &page.origin)));
        let written = match &page {
            Some((Some(file), page)) => file.write(page),
            _ => Ok(()),
        };
        match self.format {
            Format::Text => (),
            Format::Json => print_json(&reports)?,
            Format::Csv => print(&csv(reports))?,
            Format::Page => page.map_or(Ok(()), |(_, page)| print(&page))?,
        }
        Ok(written?)
    }
}

/// The files that the run reads.
fn inputs<'a>(arguments: &'a LabArgs, scenarios: &'a [Entry]) -> impl Iterator<Item = &'a Path> {
    let named = arguments.scenarios.iter().chain(&arguments.costs);
    let named = named.filter(|name| !catalog::is_built_in(name)).map(Path::new);
    named.chain(scenarios.iter().filter_map(Entry::scenario).flat_map(Scenario::files))
}

/// The scenario's name, and its machines with theirs.
fn machines(scenario: &Scenario) -> (String, Vec<(String, MachineView)>) {
    let view = |(name, machine): (&str, &_)| (name.into(), MachineView::of_simulated(machine));
    (scenario.name.clone(), scenario.machines().into_iter().map(view).collect())
}
