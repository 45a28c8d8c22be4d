//! What each public call takes at most, after random use of machines of several sizes: the kernel's rows, and the bounds that they
//! must keep.

use super::build::{Purpose, build};
use super::emulator::run_machine;
use super::machines::of_short_form;
use super::{KernelArgs, KernelError, Processor};

/// The bounds, a tenth above what was measured: a call, then the most instructions in all, and with interrupts off, and the most bytes
/// of stack, on any of the processors. In all is `-`
/// where a call is long, as it may look at the whole machine: its stretches with interrupts off are bounded, and the call is not.
const BOUNDS: &str = include_str!("bounds.txt");
/// Machines, by their memory in GiB.
const SIZES: [u64; 3] = [1, 4, 16];

/// What a call took, or may take: instructions, and bytes of stack.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: String,
    all: Option<u64>,
    masked: u64,
    stack: u64,
}

/// A row of the kernel's or of the file: `| name | in all | with interrupts off | stack |`.
fn row(line: &str) -> Option<Row> {
    let mut cells = line.split('|').map(str::trim).skip(1);
    let (name, all, masked) = (cells.next()?, cells.next()?, cells.next()?);
    let all = if all == "-" { None } else { Some(all.parse().ok()?) };
    let (masked, stack) = (masked.parse().ok()?, cells.next()?.parse().ok()?);
    Some(Row { name: name.to_owned(), all, masked, stack })
}

/// Boots each machine, prints a table, and compares.
///
/// # Errors
///
/// [`KernelError`]; [`KernelError::Failed`] with the calls that took more than their bounds.
pub fn measure(arguments: &KernelArgs) -> Result<(), KernelError> {
    let processor = Processor::X86_64;
    let kernel = build(processor, Purpose::Bounds)?;
    let bounds: Vec<Row> = BOUNDS.lines().filter_map(row).collect();
    let mut wrong = Vec::new();
    for gib in SIZES {
        let name = format!("{gib}G,cpus=0");
        if host_gib().is_some_and(|host| host < gib) {
            println!("SKIPPED: {gib} GiB: this host has less");
            continue;
        }
        let machine = of_short_form(std::slice::from_ref(&name), &[])?;
        let ran = run_machine(arguments, processor, &machine, &kernel)?;
        ran.passed(&name)?;
        let told = || ran.lines.iter().filter_map(|line| line.strip_prefix("bounds: "));
        println!("{gib} GiB, {:.0} s:", ran.time.as_secs_f64());
        println!(
            "| call | instructions | with interrupts off | bytes of stack |\n|---|---:|---:|---:|"
        );
        told().for_each(|line| println!("{line}"));
        let rows: Vec<Row> = told().filter_map(row).collect();
        wrong.extend(grown(&bounds, &rows).into_iter().map(|call| format!("{gib} GiB: {call}")));
    }
    if wrong.is_empty() {
        println!("all calls keep the bounds of xtask/src/kernel/bounds.txt");
        return Ok(());
    }
    Err(KernelError::Failed(format!("calls beyond the bounds of bounds.txt: {}", wrong.join("; "))))
}

/// What each call takes of the stack, on a small machine, by the profiles release and dev: prints a table, and compares the first with
/// the bounds.
///
/// # Errors
///
/// As [`measure`].
pub fn stack(arguments: &KernelArgs) -> Result<(), KernelError> {
    let machine = of_short_form(&["256M,cpus=0".to_owned()], &[])?;
    let measured = |purpose| -> Result<Vec<Row>, KernelError> {
        let kernel = build(arguments.processor, purpose)?;
        let ran = run_machine(arguments, arguments.processor, &machine, &kernel)?;
        ran.passed(&machine.name)?;
        let told = ran.lines.iter().filter_map(|line| line.strip_prefix("bounds: "));
        Ok(told.filter_map(row).collect())
    };
    let (release, dev) = (measured(Purpose::Bounds)?, measured(Purpose::BoundsDev)?);
    println!(
        "| call, bytes of stack on {} | release | dev |\n|---|---:|---:|",
        arguments.processor.target()
    );
    let bounds: Vec<Row> = BOUNDS.lines().filter_map(row).collect();
    let mut wrong = Vec::new();
    for (of, dev) in release.iter().zip(&dev) {
        println!("| {} | {} | {} |", of.name, of.stack, dev.stack);
        let bound = bounds.iter().find(|bound| bound.name == of.name);
        if bound.is_none_or(|bound| of.stack > bound.stack) {
            wrong.push(format!("{}: {}", of.name, of.stack));
        }
    }
    if wrong.is_empty() && !release.is_empty() {
        return Ok(());
    }
    Err(KernelError::Failed(format!("stacks beyond those of bounds.txt: {}", wrong.join("; "))))
}

/// The calls that took more than they may, that have no bound, or that nobody measured.
fn grown(bounds: &[Row], rows: &[Row]) -> Vec<String> {
    let of = |rows: &[Row], name: &str| rows.iter().find(|row| row.name == name).cloned();
    let lost = bounds.iter().filter(|bound| of(rows, &bound.name).is_none());
    let lost = lost.map(|bound| format!("{} was not measured", bound.name));
    let beyond = rows.iter().filter_map(|row| {
        let Some(bound) = of(bounds, &row.name) else {
            return Some(format!("{} has no bound", row.name));
        };
        let is_within =
            row.masked <= bound.masked && bound.all.is_none_or(|all| row.all <= Some(all));
        let Row { name, all, masked, stack } = row;
        (!is_within || *stack > bound.stack).then(|| {
            format!("{name} took {all:?}, {masked} with interrupts off, {stack} bytes of stack")
        })
    });
    lost.chain(beyond).collect()
}

/// The host's memory, in whole GiB.
fn host_gib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_grows_is_found() {
        let bounds: Vec<Row> =
            ["| a | 100 | 10 | 9 |", "| b | - | 10 | 9 |"].into_iter().filter_map(row).collect();
        let grown = |lines: &[&str]| {
            grown(&bounds, &lines.iter().filter_map(|line| row(line)).collect::<Vec<_>>())
        };
        assert_eq!(
            grown(&["| a | 100 | 10 | 9 |", "| b | 12345 | 10 | 9 |"]),
            Vec::<String>::new()
        );
        assert_eq!(grown(&["| a | 101 | 10 | 9 |", "| b | 1 | 11 | 9 |"]).len(), 2);
        assert_eq!(grown(&["| a | 1 | 1 | 10 |", "| b | 1 | 1 | 9 |"]).len(), 1);
        assert_eq!(grown(&["| a | 1 | 1 | 9 |"]), ["b was not measured"]);
        let further = ["| a | 1 | 1 | 9 |", "| b | 1 | 1 | 9 |", "| c | 1 | 1 | 9 |"];
        assert_eq!(grown(&further), ["c has no bound"]);
        assert_eq!(row("1 of 2 pages are free"), None);
    }

    #[test]
    fn each_bound_is_one() {
        let bounds: Vec<Row> = BOUNDS.lines().filter_map(row).collect();
        assert_eq!(bounds.len(), BOUNDS.lines().count());
        assert_eq!(grown(&bounds, &bounds), Vec::<String>::new());
    }
}
