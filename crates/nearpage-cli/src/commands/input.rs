//! Inputs of the commands: `-`, machines by name, and messages that name the option or the names.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use nearpage::Model;
use nearpage_bundle::predict::ModelChoice;
use nearpage_bundle::{BundleError, Recording};
use nearpage_machine::tunable::SettingKey;
use nearpage_machine::{
    Budget, InputError, MachineDescription, MachineInput, Place, catalog, size,
};
use nearpage_report::file::WriteError;
use nearpage_slab::SlabRules;

use crate::outputs::{Kind, Output};

/// How much of an input is read, of all commands that read one.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Read so much of an input that you trust where less is the most: 1G
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    limit: Option<u64>,
}

impl Limit {
    pub(super) fn budget(self) -> Budget {
        self.limit.map_or(Budget::DEFAULT, |bytes| Budget::DEFAULT.raised_to(bytes))
    }
}

fn limit(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("expected {}", size::EXPECTED))
}

/// What messages and documents call standard input.
pub(super) const STANDARD_INPUT: &str = "standard input";

/// What stands for standard input and output on the command line.
pub(super) const STANDARD: &str = "-";

/// Whether a path means standard input, or standard output.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD
}

/// The first of some words that is there more than once.
pub(super) fn repeated<'w>(words: impl Iterator<Item = &'w str> + Clone) -> Option<&'w str> {
    let known = words.clone();
    words
        .enumerate()
        .find(|(at, word)| known.clone().take(*at).any(|other| other == *word))
        .map(|of| of.1)
}

/// The file of a page, which replaces no file that is read.
pub(super) fn page_file<'a>(
    path: &Path,
    inputs: impl Iterator<Item = &'a Path>,
) -> Result<Output, WriteError> {
    let files: Vec<PathBuf> = inputs.flat_map(files_of).collect();
    let files = files.iter().map(PathBuf::as_path).collect::<Vec<_>>();
    Output::page(Kind::Page, path, &files)
}

/// The files behind an input: a file, all files below a folder, and the file that standard input was redirected from.
fn files_of(path: &Path) -> Vec<PathBuf> {
    if is_standard(path) {
        return vec!["/dev/stdin".into()];
    }
    let Ok(entries) = fs::read_dir(path) else { return vec![path.into()] };
    let files = entries.flatten().flat_map(|entry| match entry.file_type() {
        // A link to a folder above would never end.
        Ok(kind) if kind.is_dir() => files_of(&entry.path()),
        _ => vec![entry.path()],
    });
    files.collect()
}

/// The machine that `--topology` names: one of the catalogue, or one in a file of any kind or on standard input.
pub(super) fn read_machine(
    path: &Path,
    budget: &Budget,
) -> Result<MachineDescription, DescriptionFailure> {
    if is_standard(path) {
        return Ok(MachineDescription::from_reader(STANDARD_INPUT, io::stdin().lock(), budget)?);
    }
    if let Some((name, machine)) =
        path.to_str().and_then(|name| Some((name, catalog::machine(name)?)))
    {
        return Ok(MachineDescription::new(name.into(), machine)?);
    }
    let machine = MachineDescription::read(&MachineInput::Path(path.into()), budget);
    machine.map_err(|error| match error {
        InputError::Unreadable { .. } if is_name(path) => DescriptionFailure::NoMachine(error),
        error => error.into(),
    })
}

/// The same, or the short form as it stands on a command line.
pub(super) fn read_machine_text(
    text: &str,
    budget: &Budget,
) -> Result<MachineDescription, DescriptionFailure> {
    match text.trim_start().starts_with("--numa") {
        true => {
            let machine = MachineDescription::read(&short_form(text), budget)?;
            // Two of them have two names.
            Ok(MachineDescription { source: text.trim().to_owned(), ..machine })
        }
        false => read_machine(Path::new(text), budget),
    }
}

/// The values of `--numa` and `--numa-distance` in a text.
fn short_form(text: &str) -> MachineInput {
    let (mut nodes, mut distances) = (Vec::new(), Vec::new());
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let (key, value) = match word.split_once('=').filter(|(key, _)| key.starts_with("--numa")) {
            Some((key, value)) => (key, value),
            None => (word, words.next().unwrap_or_default()),
        };
        match key {
            "--numa-distance" => distances.push(value.to_owned()),
            _ => nodes.push(value.to_owned()),
        }
    }
    MachineInput::ShortForm { nodes, distances }
}

/// Whether a path may be meant as a name.
fn is_name(path: &Path) -> bool {
    path.parent() == Some(Path::new("")) && !path.exists()
}

/// Reads a recording of any kind from a path, or from standard input.
pub(super) fn read_recording(path: &Path, budget: &Budget) -> Result<Recording, BundleError> {
    match is_standard(path) {
        true => Recording::read_from(STANDARD_INPUT, io::stdin().lock(), budget),
        false => Recording::read(path, budget),
    }
}

/// An archive of /sys and /proc from standard input.
pub(super) fn standard_input_tree(
    budget: &Budget,
) -> Result<nearpage_machine::MemoryTree, InputError> {
    nearpage_machine::read_tree(STANDARD_INPUT, io::stdin().lock(), budget)
}

/// A description that cannot be read.
#[derive(Debug)]
pub enum DescriptionFailure {
    /// The message names the option instead of a value of the short form.
    Input(InputError),
    /// There is no such file, nor such a name in the catalogue; the message has the names.
    NoMachine(InputError),
}

impl DescriptionFailure {
    fn input(&self) -> &InputError {
        match self {
            Self::Input(error) | Self::NoMachine(error) => error,
        }
    }
}

impl From<InputError> for DescriptionFailure {
    fn from(error: InputError) -> DescriptionFailure {
        DescriptionFailure::Input(error)
    }
}

impl fmt::Display for DescriptionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::NoMachine(error) = self {
            let names = catalog::names().collect::<Vec<_>>().join(", ");
            return write!(
                f,
                "{error}, expected a file, a folder or the name of a machine: {names}"
            );
        }
        let error = self.input();
        let InputError::Content { place, problem } = error else { return error.fmt(f) };
        match place {
            Place::Values => write!(f, "command line: {problem}"),
            Place::NodeValue(number) => write!(f, "--numa number {number}: {problem}"),
            Place::DistanceValue(number) => write!(f, "--numa-distance number {number}: {problem}"),
            _ => error.fmt(f),
        }
    }
}

impl Error for DescriptionFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.input().source()
    }
}

/// The keys that an option takes, a line each.
pub(super) fn list_of_keys(keys: impl Iterator<Item = SettingKey>) -> String {
    let line = |key: SettingKey| format!("{:<34} {:<20} {}\n", key.name, key.values, key.meaning);
    keys.map(line).collect()
}

/// A parser of `--model`: `--help` lists the models, and so does the answer to a name that is none.
pub(super) fn models() -> impl TypedValueParser<Value = ModelChoice> {
    Models
}

/// A parser of the name of a set of rules, as [`models`] without `auto`.
pub(super) fn named_models() -> impl TypedValueParser<Value = Model> {
    NamedModels
}

#[derive(Clone)]
struct NamedModels;

impl TypedValueParser for NamedModels {
    type Value = Model;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Model, clap::Error> {
        let parse = |name: String| Model::named(&name).map_err(|unknown| unknown.to_string());
        StringValueParser::new().try_map(parse).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |model: Model| PossibleValue::new(model.name).help(model.about());
        Some(Box::new(Model::ALL.into_iter().map(value)))
    }
}

/// What `--model` of a replay names: rules of pages or of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RulesChoice {
    Pages(ModelChoice),
    Objects(SlabRules),
}

/// As [`models`], with the rules of objects.
pub(super) fn models_and_slabs() -> impl TypedValueParser<Value = RulesChoice> {
    ModelsAndSlabs
}

#[derive(Clone)]
struct ModelsAndSlabs;

impl TypedValueParser for ModelsAndSlabs {
    type Value = RulesChoice;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<RulesChoice, clap::Error> {
        let parse = |name: String| match SlabRules::by_name(&name) {
            Some(rules) => Ok(RulesChoice::Objects(rules)),
            None => name.parse::<ModelChoice>().map(RulesChoice::Pages).map_err(|unknown| {
                let objects = SlabRules::ALL
                    .map(|rules| format!("\n  {:<15} {}", rules.name(), rules.about()));
                format!("{unknown}\nor, for slab events:{}", objects.concat())
            }),
        };
        StringValueParser::new().try_map(parse).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let pages = ModelChoice::all().map(|of| PossibleValue::new(of.name()).help(of.about()));
        let value = |of: SlabRules| PossibleValue::new(of.name()).help(of.about());
        Some(Box::new(pages.chain(SlabRules::ALL.into_iter().map(value))))
    }
}

#[derive(Clone)]
struct Models;

impl TypedValueParser for Models {
    type Value = ModelChoice;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<ModelChoice, clap::Error> {
        let parser = StringValueParser::new().try_map(|name| name.parse::<ModelChoice>());
        parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |choice: ModelChoice| PossibleValue::new(choice.name()).help(choice.about());
        Some(Box::new(ModelChoice::all().map(value)))
    }
}

/// As [`models`], without `auto`: rules that no recording chooses.
pub(super) fn rules() -> impl TypedValueParser<Value = Model> {
    Rules
}

#[derive(Clone)]
struct Rules;

impl TypedValueParser for Rules {
    type Value = Model;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Model, clap::Error> {
        let parse = |name: String| Model::named(&name).map_err(|unknown| unknown.to_string());
        StringValueParser::new().try_map(parse).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |model: Model| PossibleValue::new(model.name).help(model.about());
        Some(Box::new(Model::ALL.into_iter().map(value)))
    }
}
