//! Answers as text and as pages: what changes, the answer, a table, what is left out.

use std::fmt::Write;

use nearpage_machine::shown;
use nearpage_machine::size::format as bytes;
use nearpage_replay::{Alone, NO_WAITS, Ratio, StudyAnswer, Then, Totals};
use nearpage_report::whatif::{FigureRow, FigureTable, WhatIfPage};

use nearpage_report::replay::change_lines;

use crate::commands::beside::{Front, beside, short};

/// A part of an answer.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) lines: Vec<String>,
    /// Lines that a card has of it, at most.
    card_most: usize,
    part: Part,
}

/// A page shows a section as one of these.
#[derive(Debug)]
pub(super) enum Part {
    Changes,
    Answer,
    /// A table of its own, which the lines are.
    Figures(FigureTable),
    LeavesOut,
    /// The page has it in another form.
    Nothing,
}

impl Section {
    pub(super) fn new(
        title: &'static str,
        part: Part,
        lines: Vec<String>,
        card_most: usize,
    ) -> Section {
        Section { title, lines, card_most, part }
    }

    /// Figures with their notes above them; columns of a terminal are so wide.
    pub(super) fn figures(table: FigureTable, widths: [usize; 2], card_most: usize) -> Section {
        let mut lines = table.notes.clone();
        lines.extend(aligned(&table, widths));
        let title = if table.columns.iter().any(|name| name == "recorded") {
            "Recorded, now, then"
        } else {
            "Now, then"
        };
        Section::new(title, Part::Figures(table), lines, card_most)
    }

    /// A table whose columns are as wide as what stands in them.
    pub(super) fn columns(title: &'static str, table: FigureTable, card_most: usize) -> Section {
        let names = table.columns.first().into_iter().chain(table.rows.iter().map(|row| &row.name));
        let of_names = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let width = |at: usize| table.columns[at].chars().count().max(8);
        let mut lines = vec![table.title.clone()];
        lines.extend(lined(&table, of_names, |at, cell| {
            format!("  {cell:>width$}", width = width(at))
        }));
        Section::new(title, Part::Figures(table), lines, card_most)
    }
}

/// Adds the lines that are not there yet.
pub(super) fn add_new(lines: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for line in more {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
}

/// A page of all of it.
pub(super) fn page_of(sections: &[Section]) -> WhatIfPage<'static> {
    let mut page = WhatIfPage::default();
    for Section { title, lines, part, .. } in sections {
        match part {
            Part::Changes => page.changes = lines.clone(),
            Part::Answer => page.answer.extend(lines.iter().cloned()),
            Part::Figures(table) => {
                let title = match table.title.is_empty() {
                    true => (*title).into(),
                    false => table.title.clone(),
                };
                page.figures.push(FigureTable { title, ..table.clone() });
            }
            Part::LeavesOut => page.leaves_out = lines.clone(),
            Part::Nothing => {}
        }
    }
    page
}

/// A table's lines: names, now (and recorded) in so many columns, then pairs of a value and its ratio.
fn aligned(table: &FigureTable, [of_names, of_now]: [usize; 2]) -> Vec<String> {
    let first = table.columns.iter().position(|name| name == "now").unwrap_or(1) + 1;
    let width = |at: usize| match at {
        at if at < first => of_now,
        at if (at - first) % 2 == 0 => 16,
        _ => 8,
    };
    lined(table, of_names, |at, cell| format!(" {cell:>width$}", width = width(at)))
}

/// A line for the heads and for each row: a name in so many columns, and each cell as `cell` has it at its place.
fn lined(
    table: &FigureTable,
    of_names: usize,
    cell: impl Fn(usize, &str) -> String,
) -> Vec<String> {
    let line = |name: &str, cells: &[String]| {
        let cells = (1..).zip(cells).map(|(at, text)| cell(at, text));
        let line = format!("{name:<of_names$}") + &cells.collect::<String>();
        line.trim_end().to_owned()
    };
    let head = table.columns.split_first().map(|(name, cells)| line(name, cells));
    head.into_iter().chain(table.rows.iter().map(|row| line(&row.name, &row.cells))).collect()
}

/// All of it.
pub(super) fn whole(sections: &[Section]) -> String {
    let mut out = String::new();
    for (at, section) in sections.iter().enumerate() {
        let _ = writeln!(out, "{}{}", if at > 0 { "\n" } else { "" }, section.title);
        for line in &section.lines {
            let _ = writeln!(out, "  {line}");
        }
    }
    out
}

/// The most lines and columns of a card.
const CARD_LINES: usize = 25;
const CARD_COLUMNS: usize = 100;

/// What fits into a mail, in the same order: the answer to its end, of a table some rows at least, and of the other parts as many whole
/// sentences as there is room for.
pub(super) fn card(sections: &[Section]) -> String {
    let shown = sections.iter().filter(|section| section.card_most > 0);
    let shown: Vec<(&Section, Vec<Vec<String>>)> =
        shown.map(|section| (section, section.items())).collect();
    let wanted = |(section, items): &(&Section, Vec<Vec<String>>)| {
        let lines = items.iter().map(Vec::len).sum::<usize>();
        if matches!(section.part, Part::Answer) { lines } else { lines.min(section.card_most) }
    };
    let mut most: Vec<usize> = shown.iter().map(wanted).collect();
    while most.iter().sum::<usize>() > CARD_LINES - shown.len() {
        // What has the most of its share gives a line, and the answer the last ones.
        let of_share = |at: usize| 12 * most[at] / shown[at].0.part.share();
        let all = (0..most.len()).filter(|at| most[*at] > 1);
        let Some(at) = all.max_by_key(|at| of_share(*at)) else { break };
        most[at] -= 1;
    }
    let mut lines = Vec::new();
    for ((section, items), most) in shown.iter().zip(most) {
        lines.push(section.title.to_owned());
        let all = items.iter().map(Vec::len).sum::<usize>();
        let room = if all > most { most.saturating_sub(1) } else { most };
        let mut taken = 0;
        let fits = |item: &&Vec<String>| {
            taken += item.len();
            taken <= room
        };
        let whole: Vec<&Vec<String>> = items.iter().take_while(fits).collect();
        lines.extend(whole.iter().copied().flatten().map(|line| format!("  {line}")));
        let left = items.len() - whole.len();
        if left > 0 {
            lines.push(format!("  ... and {left} more (without --card)"));
        }
    }
    debug_assert!(lines.len() <= CARD_LINES);
    lines.join("\n") + "\n"
}

impl Part {
    /// Lines of a card that it needs before others have more.
    fn share(&self) -> usize {
        match self {
            Part::Answer => CARD_LINES,
            Part::Changes | Part::Figures(_) | Part::Nothing => 6,
            Part::LeavesOut => 3,
        }
    }
}

impl Section {
    /// Its sentences in lines that are short enough, and its rows with the columns that fit.
    fn items(&self) -> Vec<Vec<String>> {
        let item = |line: &String| match self.part {
            Part::Figures(_) | Part::Nothing => vec![cut(line)],
            _ => wrapped(line),
        };
        self.lines.iter().map(item).collect()
    }
}

/// A sentence in lines that are short enough. A number stays with its unit.
fn wrapped(line: &str) -> Vec<String> {
    const UNITS: [&str; 5] = ["%", "us", "MiB", "GiB", "KiB"];
    let mut lines = vec![String::new()];
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', '.', ')']));
        match words.last_mut() {
            Some(last) if is_unit => *last += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    for word in words {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > CARD_COLUMNS {
            lines.push(format!("  {word}"));
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(&word);
    }
    lines
}

/// A row without the columns that have no room.
fn cut(line: &str) -> String {
    const MORE: &str = " ...";
    if line.chars().count() <= CARD_COLUMNS {
        return line.to_owned();
    }
    let room: String = line.chars().take(CARD_COLUMNS - MORE.len()).collect();
    let end = room.rfind(' ').unwrap_or(room.len());
    room[..end].trim_end().to_owned() + MORE
}

/// An answer about a recorded load.
pub(super) fn of_study(answer: &StudyAnswer) -> Vec<Section> {
    let of_other = if answer.is_nearest_model { " (the nearest that is modelled)" } else { "" };
    let kernel = answer.kernel.as_deref().unwrap_or("unknown");
    let mut changes = vec![format!("{}: kernel {kernel}", answer.bundle)];
    changes.extend(answer.alone.iter().flat_map(played));
    changes.extend(change_lines(answer.then.iter().map(|then| &then.changes)));
    let mut said: Vec<String> = Vec::new();
    if answer.then.is_empty() {
        said.push(absolute(&answer.now));
    }
    for then in &answer.then {
        let rules = if answer.then.len() > 1 { format!("{}: ", then.model) } else { String::new() };
        let copies = match then.changes.repeat {
            copies if copies > 1 && answer.on_recorded.is_none() && answer.alone.is_none() => {
                format!("{copies} copies against one: ")
            }
            _ => String::new(),
        };
        let refused = match then.refused_allocs {
            0 => String::new(),
            refused => format!(" {refused} requests of the trace are refused."),
        };
        said.push(format!("{rules}{copies}{}{refused}", sentence(&answer.now, then)));
        said.extend(then.idle_settings.iter().map(|idle| format!("{idle}.")));
        said.extend(range(then, answer));
    }
    let has_answer = answer.then.iter().any(|then| then.no_difference.is_none());
    said.extend(answer.no_range.filter(|_| has_answer).map(|why| format!("No range: {why}.")));
    let mut note = format!("now: {}{of_other}", answer.now_is);
    if answer.on_recorded.is_some() {
        let model = answer.model;
        note = format!("played there: {model}{of_other} on the recorded machine; {note}");
    }
    let table = figures(answer, vec![note]);
    let mut leaves_out = answer.leaves_out.clone();
    if let (Some(percent), Some(worst)) = (answer.fidelity_percent, answer.fidelity_worst) {
        leaves_out.insert(
            0,
            format!(
                "the model scores {percent:.2} % on the recorded machine; its worst row, {}, {:.2} % (nearpage replay)",
                worst.quantity, worst.percent
            ),
        );
    }
    vec![
        Section::new("What changes", Part::Changes, changes, 9),
        Section::new("Answer", Part::Answer, said, 4),
        Section::figures(table, [32, 12], 7),
        Section::new("What the model leaves out", Part::LeavesOut, leaves_out, 4),
    ]
}

/// What a trace without captures is, and where it is played.
fn played(alone: &Alone) -> Vec<String> {
    let Alone { trace, machine, cpus, repeat, .. } = alone;
    let mut lines = vec![
        format!(
            "a trace: {} events in {:.3} s; {} blocks allocated, {} freed, on {} CPUs",
            trace.events, trace.seconds, trace.allocs, trace.frees, trace.cpus
        ),
        format!(
            "machine: {}: {} nodes, {} CPUs, {} in pages of {}, all free",
            shown(&machine.name),
            machine.nodes,
            machine.cpus,
            bytes(machine.memory_bytes),
            bytes(machine.page_bytes)
        ),
        format!("CPUs: {cpus}"),
    ];
    if *repeat > 1 {
        lines.push(format!("copies of the trace at once: {repeat}"));
    }
    lines
}

/// The answer if nothing is changed.
fn absolute(now: &Totals) -> String {
    let count = |of: Option<u64>| of.map_or("unknown".into(), |count| count.to_string());
    format!(
        "{} holds of zone locks, {} pages in the longest, {} pages kept in pagesets, the mean over time.",
        count(now.lock_acquisitions),
        count(now.most_pages_per_hold),
        now.kept_pages_mean.map_or("unknown".into(), |pages| format!("{pages:.0}"))
    )
}

/// Leaves out that waits are left out.
pub(super) fn drop_no_waits(sections: &mut [Section]) {
    for section in sections {
        section.lines.retain(|line| line != NO_WAITS);
    }
}

/// Puts waits before what is left out. On a card their table stands for the other one, whose answer is a sentence.
pub(super) fn add_waits(
    sections: &mut Vec<Section>,
    waits: impl IntoIterator<Item = Section>,
    leaves_out: &[String],
) {
    sections[2].card_most = 0;
    add_new(&mut sections[3].lines, leaves_out.iter().cloned());
    sections.splice(3..3, waits);
}

fn sentence(now: &Totals, then: &Then) -> String {
    match &then.no_difference {
        Some(why) => format!("no difference: {why}."),
        None => beside(&Front::of(&then.totals), &Front::of(now)) + ".",
    }
}

fn range(then: &Then, answer: &StudyAnswer) -> Option<String> {
    let text = |of: Ratio, what: &str| {
        let [least, most] = of.range?;
        Some(format!("{what} {} to {}", short(least), short(most)))
    };
    let all = [
        text(then.ratios.holds, "holds"),
        text(then.ratios.longest_hold, "longest hold"),
        text(then.ratios.kept, "kept"),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    let (starts, level) = (answer.starts, answer.level_percent?);
    let all = (!all.is_empty()).then(|| all.join(", "))?;
    Some(match starts {
        1 => format!("From the likely start and one that was drawn, times: {all}."),
        _ => format!("From {starts} drawn starts (level {level:.0} %), times: {all}."),
    })
}

/// The table: recorded, now, and then with its ratio to now.
fn figures(answer: &StudyAnswer, notes: Vec<String>) -> FigureTable {
    type Read = fn(&Totals) -> Option<f64>;
    let quantities: [(&str, Read); 10] = [
        ("zone-lock holds", |of| of.lock_acquisitions.map(|count| count as f64)),
        ("pages in the longest hold", |of| of.most_pages_per_hold.map(|count| count as f64)),
        ("pages kept, mean over time", |of| of.kept_pages_mean),
        ("pages kept, most", |of| of.kept_pages_most.map(|count| count as f64)),
        ("refills", |of| Some(of.refills as f64)),
        ("pages refilled", |of| Some(of.refill_pages as f64)),
        ("drains", |of| Some(of.drains as f64)),
        ("pages drained", |of| Some(of.drain_pages as f64)),
        ("pages from another node", |of| Some(of.remote_pages as f64)),
        ("longest hold, us of model time", |of| of.longest_hold_ns.map(|ns| ns / 1000.0)),
    ];
    let recorded = answer.recorded.as_ref();
    let mut columns = vec!["quantity".to_owned()];
    columns.extend(recorded.map(|_| "recorded".to_owned()));
    columns.extend(answer.on_recorded.as_ref().map(|_| "played there".to_owned()));
    columns.push("now".to_owned());
    let head = |then: &Then| match then.changes.rules {
        rules if answer.then.len() == 1 && rules.before == rules.after => "then".to_owned(),
        _ => then.model.to_owned(),
    };
    columns.extend(answer.then.iter().flat_map(|then| [head(then), "ratio".to_owned()]));
    let number = |of: Option<f64>| match of {
        None => "-".to_owned(),
        Some(value) if value.fract() != 0.0 && value < 100.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.0}"),
    };
    let row = |(name, read): (&str, Read)| {
        let now = read(&answer.now);
        let elsewhere = recorded.into_iter().chain(&answer.on_recorded);
        let mut cells: Vec<String> = elsewhere.map(|of| number(read(of))).collect();
        cells.push(number(now));
        for then in &answer.then {
            let value = read(&then.totals);
            let ratio = value.zip(now).filter(|(_, now)| *now > 0.0).map(|(then, now)| then / now);
            cells.push(number(value));
            cells.push(ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
        }
        FigureRow { name: name.to_owned(), are_pages: name.starts_with("pages"), cells }
    };
    let rows = quantities.into_iter().map(row).collect();
    let page_shift = answer.timeline.runs.first().map(|run| run.page_shift);
    FigureTable { title: String::new(), notes, columns, rows, page_shift }
}
