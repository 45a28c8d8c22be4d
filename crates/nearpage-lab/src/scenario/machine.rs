//! The machine of a scenario: one of the catalogue, or a table of its own.

use std::ops::Range;

use nearpage_machine::catalog;
use nearpage_machine::table::{self, DistanceTable, NodesTable};
use nearpage_sim::{Machine, check_machine};
use serde::Deserialize;
use toml::Spanned;

use super::wrong::{Checked, wrong};

/// The machine of a scenario.
#[derive(Clone, Debug)]
pub struct MachineOf {
    /// The machine.
    pub machine: Machine,
    /// The table of costs: a name or a file.
    pub costs: String,
}

/// A machine of the catalogue, or one of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineTable {
    costs: String,
    catalog: Option<Spanned<String>>,
    page_size: Option<Spanned<String>>,
    nodes: Option<Spanned<Vec<NodesTable>>>,
    distance: Option<Spanned<DistanceTable>>,
}

impl MachineTable {
    /// Where errors of the machine as a whole belong: its nodes, or without any the place that is given.
    pub(super) fn span_or(&self, span: Range<usize>) -> Range<usize> {
        self.nodes.as_ref().map_or(span, Spanned::span)
    }

    /// The machine; `span` is the place of what no key is to blame for.
    pub(super) fn check(self, span: Range<usize>) -> Checked<MachineOf> {
        let described = self.described(span.clone())?;
        let machine = Machine::from(&described);
        if machine.cpus().next().is_none() {
            let message = "machine.nodes: no node has a CPU (`cpus_each`); at least one must";
            return wrong(span, message);
        }
        match machine.topology().with(|_| ()) {
            Ok(()) => Ok(MachineOf { machine, costs: self.costs }),
            Err(error) => wrong(span, format!("machine: {error}")),
        }
    }

    fn described(&self, span: Range<usize>) -> Checked<nearpage_machine::Machine> {
        let Self { catalog, page_size, nodes, distance, .. } = self;
        match (catalog, page_size, nodes, distance) {
            (Some(name), None, None, None) => {
                catalog::machine(name.get_ref()).map_or_else(|| unknown(name), Ok)
            }
            (None, page_size, Some(nodes), Some(distance)) => {
                let (page_size, nodes) = (page_size.clone(), nodes.clone());
                let table = table::MachineTable { page_size, nodes, distance: distance.clone() };
                table.machine().or_else(|error| wrong(error.span.clone(), error.to_string()))
            }
            _ => {
                let message = "machine: accepted: `catalog`, or `nodes` and `distance` with optional `page_size`";
                wrong(span, message)
            }
        }
    }
}

fn unknown<T>(name: &Spanned<String>) -> Checked<T> {
    let known: Vec<&str> = catalog::names().collect();
    let (span, name) = (name.span(), name.get_ref());
    wrong(span, format!("catalog has no machine {name:?}; accepted: {}", known.join(", ")))
}

/// The same with a name.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedMachineTable {
    name: String,
    costs: String,
    catalog: Option<Spanned<String>>,
    page_size: Option<Spanned<String>>,
    nodes: Option<Spanned<Vec<NodesTable>>>,
    distance: Option<Spanned<DistanceTable>>,
}

/// Checks a machine with a name.
pub(super) fn named_machine(table: Spanned<NamedMachineTable>) -> Checked<(String, MachineOf)> {
    let span = table.span();
    table.into_inner().check(span)
}

impl NamedMachineTable {
    fn check(self, span: Range<usize>) -> Checked<(String, MachineOf)> {
        let Self { name, costs, catalog, page_size, nodes, distance } = self;
        let span = nodes.as_ref().map_or(span, Spanned::span);
        let table = MachineTable { costs, catalog, page_size, nodes, distance };
        let machine = table.check(span.clone())?;
        can_be(&machine.machine, span)?;
        Ok((name, machine))
    }
}

/// Whether such a machine can be simulated.
pub(super) fn can_be(machine: &Machine, nodes: Range<usize>) -> Checked<()> {
    check_machine(machine).or_else(|error| wrong(nodes, format!("machine: {error}")))
}
