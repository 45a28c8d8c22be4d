//! Tables of what came of pairs.

use std::fmt::Write;

use super::Done;
use super::judge::{FIGURES, Judged, Range, Verdict};
use super::list::{Pair, Setting};

/// A pair, line by line.
pub fn each(done: &Done) -> String {
    let mut text = String::new();
    let Pair { load, setting, b, .. } = done.pair;
    let known = if matches!(setting, Setting::Known(_)) { "" } else { ", which the model lacks" };
    let kernel = &done.kernel;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{kernel}, {}: {} = {b}{known}", load.name, setting.key());
    for of in &done.judged {
        let _ = write!(text, "  {:22}", FIGURES[of.figure].1);
        [of.a, of.b, of.predicted, of.own]
            .iter()
            .for_each(|range| _ = write!(text, " {:>24}", shown(*range)));
        let within = if of.is_within { "in range" } else { "out of range" };
        let _ = writeln!(text, "  {}, {within}", of.verdict.words());
    }
    text
}

/// `median (least to most)`.
fn shown(range: Range) -> String {
    let Range { least, median, most } = range;
    format!("{median:.0} ({least:.0} to {most:.0})")
}

/// The whole file.
pub fn all(done: &[Done], missing: &[(&Pair, String)], times: u32) -> String {
    let mut text = format!("# cargo xtask pairs, {times} recordings of each setting\n");
    let known: Vec<&Done> = done.iter().filter(|of| is_known(of)).collect();
    let figures: Vec<&Judged> = known.iter().flat_map(|of| &of.judged).collect();
    let _ = writeln!(text, "\nBy figure:\n\n# ANCHOR: figures\n{}", head("figure"));
    for (at, (_, name)) in FIGURES.iter().enumerate() {
        row(&mut text, name, figures.iter().copied().filter(|of| of.figure == at));
    }
    row(&mut text, "all", figures.iter().copied());
    text += "# ANCHOR_END: figures\n";
    let _ = writeln!(text, "\nBy pair:\n\n# ANCHOR: pairs\n{}", head("pair"));
    for of in done {
        let lacks = if is_known(of) { "" } else { " (the model lacks it)" };
        let Pair { kernel, load, setting, b } = of.pair;
        let name = format!("{kernel}, {}: `{}={b}`{lacks}", load.name, setting.key());
        row(&mut text, &name, of.judged.iter());
    }
    let _ = writeln!(
        text,
        "# ANCHOR_END: pairs\n\nmedian (least to most) of   A recorded               B recorded              B predicted      model on B's traces"
    );
    done.iter().for_each(|of| text += &each(of));
    for (pair, why) in missing {
        let _ = writeln!(text, "\nnot recorded: {}: {why}", pair.name());
    }
    text
}

fn is_known(of: &Done) -> bool {
    matches!(of.pair.setting, Setting::Known(_))
}

fn head(first: &str) -> String {
    let columns =
        "changed | told | no change | told | in range | error | own error | A beside B | noise";
    format!("| {first} | {columns} |\n|---|---|---|---|---|---|---|---|---|---|")
}

/// Counts of verdicts, and medians of [`Judged::factors`].
fn row<'a>(text: &mut String, name: &str, of: impl Iterator<Item = &'a Judged>) {
    let of: Vec<&Judged> = of.collect();
    if of.is_empty() {
        return;
    }
    let count = |is: &dyn Fn(&Judged) -> bool| of.iter().filter(|of| is(of)).count();
    let with = |verdict| count(&|of| of.verdict == verdict);
    let changed = with(Verdict::Right) + with(Verdict::Missed) + with(Verdict::Opposite);
    let same = of.len() - changed;
    let percent = |at: usize| {
        let mut factors: Vec<f64> = of.iter().map(|of| of.factors()[at]).collect();
        factors.sort_by(f64::total_cmp);
        100.0 * (factors[factors.len() / 2] - 1.0)
    };
    let _ = writeln!(
        text,
        "| {name} | {changed} | {} | {same} | {} | {} of {} | {:.0} % | {:.0} % | {:.0} % | {:.0} % |",
        with(Verdict::Right),
        with(Verdict::RightlyNone),
        count(&|of| of.is_within),
        of.len(),
        percent(0),
        percent(1),
        percent(2),
        percent(3),
    );
}
