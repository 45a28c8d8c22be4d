//! README.md, written out of a source that is tested: figures come from result files, and what tests need is left out.

use super::results::{self, Results};

/// Where the text is kept. `crates/nearpage-cli/tests/book.rs` runs its commands.
pub const SOURCE: &str = "docs/README.trycmd";

/// The page: `{KEY}` and `{KEY | DECIMALS}` become the values of result files; lines `? 1` (exit codes) are left out.
pub fn page(source: &str, results: &Results) -> Result<String, Vec<String>> {
    let (mut out, mut errors) = (String::new(), Vec::new());
    let mut code = false;
    for (at, line) in source.lines().enumerate() {
        code ^= line.starts_with("```");
        if code && (line.starts_with("? ") || line.is_empty() && out.ends_with("\n\n")) {
            continue;
        }
        if line.contains("[..]") {
            errors.push(format!("{SOURCE}:{}: readers would see `[..]`", at + 1));
        }
        match if code { Ok(line.to_owned()) } else { filled(line, results) } {
            Ok(line) => out += &(line + "\n"),
            Err(error) => errors.push(format!("{SOURCE}:{}: {error}", at + 1)),
        }
    }
    if errors.is_empty() { Ok(out) } else { Err(errors) }
}

/// A line with the values of its keys, and no other figures.
fn filled(line: &str, results: &Results) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), line);
    let mut bare = String::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (key, after) = after.split_once('}').ok_or("`{` without `}`")?;
        let (key, decimals) = match key.split_once(" | ") {
            Some((key, decimals)) => (
                key,
                decimals.trim().parse::<usize>().map_err(|_| format!("`{decimals}` decimals"))?,
            ),
            None => (key, 0),
        };
        let value = results.value(key)?;
        let value =
            results::number(&value).ok_or_else(|| format!("`{key}` is `{value}`, no number"))?;
        out += before;
        out += &super::rounded(value, &format!("{value:.decimals$}"));
        bare += before;
        bare += "#";
        rest = after;
    }
    bare += rest;
    let quoted = bare.contains("<!-- said:");
    match super::figure::numbers(&bare).into_iter().find(|number| number.measured && !quoted) {
        Some(number) => Err(format!("no source: {}", super::around(&bare, &number.at))),
        None => Ok((out + rest).split(" <!-- said:").next().unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_filled_and_notation_is_left_out() {
        let results = Results::of("pages", "pair: ns\n allocator  median \n nearpage     12.43 \n");
        let source = "A pair takes {pages / pair / nearpage / median | 1} ns.\n```console\n$ nearpage\n? 1\n...\n```\n";
        assert_eq!(
            page(source, &results).unwrap(),
            "A pair takes 12.4 ns.\n```console\n$ nearpage\n...\n```\n"
        );
        for wrong in ["It takes 3 ns.\n", "{pages / pair / mmap / median} ns\n", "```\n[..]\n```\n"]
        {
            assert!(page(wrong, &results).is_err(), "{wrong}");
        }
    }
}
