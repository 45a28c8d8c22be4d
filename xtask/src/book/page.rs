//! A page of Markdown as blocks: fences, and text between blank lines, with the comment behind it that names its sources.

/// What a page consists of.
#[derive(PartialEq, Eq, Debug)]
pub enum Block<'a> {
    /// A fenced block.
    Fence {
        /// The line of the opening fence, from 0.
        at: usize,
        /// What stands behind the opening fence: `console`, `rust`, `text`.
        kind: &'a str,
        /// Its lines, without the fences.
        lines: Vec<&'a str>,
        /// The directive on the line before it.
        source: Option<Directive<'a>>,
    },
    /// A paragraph, a list, a table, a heading.
    Text {
        /// Its first line, from 0.
        at: usize,
        /// Its lines.
        lines: Vec<&'a str>,
        /// The directive that follows it at once.
        source: Option<Directive<'a>>,
    },
    /// `<!-- table: FILE / SECTION -->`, what it shows today, `<!-- end -->`.
    Table {
        /// The line of the directive, from 0.
        at: usize,
        /// What is shown.
        what: &'a str,
        /// Lines between the two comments.
        lines: Vec<&'a str>,
    },
    /// A directive that stands alone: of the whole page.
    Alone(Directive<'a>),
}

/// `<!-- NAME: VALUE -->`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directive<'a> {
    pub name: &'a str,
    pub value: &'a str,
}

/// Names of directives; other comments are text.
const NAMES: [&str; 7] = ["figures", "published", "set", "wanted", "lines", "rules", "table"];

/// The directive that a text begins with, and what follows it.
fn directive(text: &str) -> Option<(Directive<'_>, &str)> {
    let (inside, rest) = text.strip_prefix("<!--")?.split_once("-->")?;
    let (name, value) = inside.split_once(':')?;
    let name = name.trim();
    NAMES.contains(&name).then_some((Directive { name, value: value.trim() }, rest))
}

/// Cuts a page into blocks.
///
/// # Errors
/// A fence or a table without an end, by line.
pub fn blocks(text: &str) -> Result<Vec<Block<'_>>, String> {
    let mut offsets = vec![0];
    offsets.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let (mut at, mut adjoins) = (0, false);
    while at < lines.len() {
        let line = lines[at];
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            let length =
                lines[at + 1..].iter().position(|line| line.trim_start().starts_with("```"));
            let length = length.ok_or_else(|| format!("line {}: the fence has no end", at + 1))?;
            let source = match blocks.last() {
                Some(Block::Alone(before)) if before.name == "lines" => Some(*before),
                _ => None,
            };
            let inside = lines[at + 1..at + 1 + length].to_vec();
            blocks.push(Block::Fence { at, kind: kind.trim(), lines: inside, source });
            at += length + 2;
            adjoins = false;
        } else if let Some((found, rest)) = directive(&text[offsets[at]..]) {
            let used = text[offsets[at]..text.len() - rest.len()].matches('\n').count() + 1;
            if found.name == "table" {
                let end = lines[at + used..].iter().position(|line| *line == "<!-- end -->");
                let end =
                    end.ok_or_else(|| format!("line {}: the table has no `<!-- end -->`", at + 1))?;
                let inside = lines[at + used..at + used + end].to_vec();
                blocks.push(Block::Table { at, what: found.value, lines: inside });
                at += used + end + 1;
            } else {
                match blocks.last_mut() {
                    Some(Block::Text { source, .. }) if adjoins && source.is_none() => {
                        *source = Some(found)
                    }
                    _ => blocks.push(Block::Alone(found)),
                }
                at += used;
            }
            adjoins = false;
        } else if line.trim().is_empty() {
            (at, adjoins) = (at + 1, false);
        } else {
            match blocks.last_mut() {
                Some(Block::Text { lines, .. }) if adjoins => lines.push(line),
                _ => blocks.push(Block::Text { at, lines: vec![line], source: None }),
            }
            (at, adjoins) = (at + 1, true);
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_text_with_sources_tables_and_fences() {
        let page = "# T\n<!-- rules: nearpage 1 -->\n\nTakes 3 ns.\n<!-- figures: a / b /\nc -->\n\n<!-- table: f / s -->\n| a |\n<!-- end -->\n\n```text\n5 ns\n```\n<!-- a note -->\n";
        let blocks = blocks(page).unwrap();
        assert!(
            matches!(
                &blocks[1],
                Block::Text {
                    at: 3,
                    source: Some(Directive { name: "figures", value: "a / b /\nc" }),
                    ..
                }
            ),
            "{blocks:#?}"
        );
        assert!(
            matches!(&blocks[2], Block::Table { at: 7, what: "f / s", lines } if lines == &["| a |"])
        );
        assert!(matches!(&blocks[3], Block::Fence { kind: "text", .. }));
        assert!(matches!(&blocks[4], Block::Text { source: None, .. }), "other comments are text");
        assert!(
            super::blocks("```text\n").is_err() && super::blocks("<!-- table: a -->\n").is_err()
        );
    }
}
