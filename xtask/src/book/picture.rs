//! The picture of README.md: three results, as bars, out of result files.

use std::fmt::Write as _;

use super::results::{self, Results};

/// Where it is kept.
pub const PATH: &str = "docs/src/img/readme.svg";

/// A bar: who, how much, and whether it is nearpage's.
struct Bar {
    name: String,
    value: Option<f64>,
    ours: bool,
}

/// Three panels of bars, one beside the other.
pub fn draw(results: &Results) -> Result<String, String> {
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 230\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"960\" height=\"230\" fill=\"#fff\"/>\n",
    );
    let mut bars = Vec::new();
    for (row, name) in [("score", "score"), ("the worst row", "worst row")] {
        for column in ["least", "median", "most"] {
            let value = value(results, &format!("fidelity / All recordings / {row} / {column}"))?;
            let (name, ours) = (format!("{name}, {column}"), row == "score");
            bars.push(Bar { name, value: Some(value), ours });
        }
    }
    panel(&mut out, 0, "Recordings replayed: score of 100", &bars, 1);
    let mut bars = Vec::new();
    for (file, machine) in [("pages-places", "today"), ("pages-before", "before")] {
        for who in ["nearpage", "dpdk", "snmalloc", "mimalloc"] {
            let there = value(results, &format!("{file} / cross / {who} / median")).ok();
            bars.push(Bar {
                name: format!("{machine}, {who}"),
                value: there,
                ours: who == "nearpage",
            });
        }
    }
    panel(&mut out, 320, "A page, freed on another CPU: ns", &bars, 0);
    let mut bars = vec![Bar { name: "glibc".to_owned(), value: Some(1.0), ours: false }];
    for who in ["tcmalloc", "jemalloc", "mimalloc", "nearpage"] {
        let time = value(results, &format!("programs / Geometric means / {who} / wall time"))?;
        bars.push(Bar { name: who.to_owned(), value: Some(time), ours: who == "nearpage" });
    }
    panel(&mut out, 640, "22 programs under a malloc: time", &bars, 2);
    out += "</svg>\n";
    Ok(out)
}

fn value(results: &Results, key: &str) -> Result<f64, String> {
    let value = results.value(key)?;
    results::number(&value).ok_or_else(|| format!("`{key}` is `{value}`, no number"))
}

fn panel(out: &mut String, left: u32, title: &str, bars: &[Bar], decimals: usize) {
    let longest = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let _ = writeln!(out, "<text x=\"{}\" y=\"20\" font-weight=\"bold\">{title}</text>", left + 8);
    for (row, bar) in bars.iter().enumerate() {
        let y = 32 + 24 * row;
        let (name, colour) = (&bar.name, if bar.ours { "#1764ab" } else { "#999" });
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            left + 108,
            y + 14
        );
        let Some(value) = bar.value else {
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" fill=\"#666\">not run</text>",
                left + 116,
                y + 14
            );
            continue;
        };
        let width = 150.0 * value / longest;
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{y}\" width=\"{width:.1}\" height=\"18\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{value:.decimals$}</text>",
            left + 114,
            f64::from(left) + 118.0 + width,
            y + 14
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value_and_what_was_not_run_is_told() {
        let bars = [
            Bar { name: "a".to_owned(), value: Some(2.0), ours: true },
            Bar { name: "b".to_owned(), value: Some(1.0), ours: false },
            Bar { name: "c".to_owned(), value: None, ours: false },
        ];
        let mut out = String::new();
        panel(&mut out, 0, "t", &bars, 1);
        assert!(out.contains("width=\"150.0\"") && out.contains("width=\"75.0\""), "{out}");
        assert!(out.contains(">2.0<") && out.contains("not run"), "{out}");
        assert!(draw(&Results::of("pages", "")).is_err());
    }
}
