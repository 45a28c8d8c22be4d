//! Where reports go: text as they come, JSON or figures at the end, and a page.

use super::{CommandError, LabArgs, text};
use crate::commands::print;
use nearpage_lab::Report;
use nearpage_report::file::PageFile;
use nearpage_report::lab::page_of;
use nearpage_report::{MachineView, Origin};

/// Where they go.
#[derive(Clone, Debug)]
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
}

#[derive(Clone, Debug)]
struct Page {
    file: PageFile,
    origin: Origin,
    machines: Vec<(String, Vec<(String, MachineView)>)>,
}

impl Output {
    /// As asked for. `machines` has those of each scenario by name.
    ///
    /// # Errors
    ///
    /// The page's file cannot be written.
    pub(super) fn of(
        arguments: &LabArgs,
        machines: Vec<(String, Vec<(String, MachineView)>)>,
    ) -> Result<Output, CommandError> {
        let format = match (arguments.json, arguments.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        };
        let page = match &arguments.report {
            Some(path) => {
                let origin = Origin::new(std::env::args_os(), arguments.seed.to_string());
                Some(Page { file: PageFile::at(path, &[])?, origin, machines })
            }
            None => None,
        };
        Ok(Output { format, page })
    }

    /// Says what one scenario came to, if that is said at once.
    pub(super) fn print_one(&self, report: &Report) -> Result<(), CommandError> {
        if self.format == Format::Text { print(&text::report(report)) } else { Ok(()) }
    }

    /// Writes the page, and prints what comes at the end, also if the page cannot be written.
    pub(super) fn end(&self, reports: &[Report]) -> Result<(), CommandError> {
        let written = match &self.page {
            Some(page) => page.file.write(&page_of(reports, &page.machines, &page.origin)),
            None => Ok(()),
        };
        match self.format {
            Format::Text => (),
            Format::Json => {
                let json = serde_json::to_string_pretty(reports).expect("figures and text");
                print(&format!("{json}\n"))?;
            }
            Format::Csv => print(&nearpage_lab::csv(reports))?,
        }
        Ok(written?)
    }
}
