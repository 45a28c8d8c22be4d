//! Names of flags: the table in an event's `print fmt`, whose bits are constant expressions of C.
//!
//! ```text
//! __print_flags(REC->gfp_flags, "|", {( unsigned long)((( gfp_t)0x400u) | (( gfp_t)0x40u)), "GFP_NOIO"}, ...)
//! ```

/// Expressions nest by some dozens of parentheses.
const DEPTH_MAX: usize = 200;
/// The longest name, which each record repeats.
const NAME_BYTES_MAX: usize = 64;
/// Flags of a table.
const FLAGS_MAX: usize = 256;

/// Bits and their name, in the order in which a kernel looks for them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Flags(Vec<(u64, String)>);

impl Flags {
    /// The table of the field `field` in a `print fmt`; an empty one if it has none that is understood.
    pub fn parse(print: &str, field: &str) -> Flags {
        let call = format!("__print_flags(REC->{field}, \"|\",");
        let Some((_, mut rest)) = print.split_once(&call) else { return Flags::default() };
        let mut flags = Vec::new();
        while flags.len() < FLAGS_MAX
            && let Some(entry) = rest.trim_start_matches([' ', ',']).strip_prefix('{')
            && let Some((entry, after)) = entry.split_once('}')
            && let Some((bits, name)) = entry.rsplit_once(',')
        {
            let name = name.trim().strip_prefix('"').and_then(|name| name.strip_suffix('"'));
            // The last entry has no name.
            if let (Some(bits), Some(name)) = (evaluate(bits), name)
                && name.len() <= NAME_BYTES_MAX
            {
                flags.push((bits, name.to_owned()));
            }
            rest = after;
        }
        Flags(flags)
    }

    /// Writes a set of flags as the kernel does: the first that are all in it, and what is left as a number.
    pub fn write(&self, mut bits: u64, out: &mut Vec<u8>) {
        if bits == 0 {
            return out.extend_from_slice(b"none");
        }
        let mut is_first = true;
        let mut put = |name: &str| {
            if !is_first {
                out.push(b'|');
            }
            is_first = false;
            out.extend_from_slice(name.as_bytes());
        };
        for (mask, name) in &self.0 {
            if *mask != 0 && bits & mask == *mask {
                put(name);
                bits &= !mask;
            }
        }
        if bits != 0 {
            put(&format!("{bits:#x}"));
        }
    }
}

/// The value of a constant expression: numbers, `|`, `&`, `+`, `-`, `<<`, `>>`, `~`, parentheses and casts.
fn evaluate(text: &str) -> Option<u64> {
    let mut parser = Parser { rest: text.trim(), depth: 0 };
    let value = parser.or()?;
    parser.rest.trim().is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn accept(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        let is_there = rest.starts_with(token);
        if is_there {
            self.rest = &rest[token.len()..];
        }
        is_there
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.and()?;
        while self.accept("|") {
            value |= self.and()?;
        }
        Some(value)
    }

    fn and(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.accept("&") {
            value &= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        loop {
            if self.accept("<<") {
                value = value.checked_shl(u32::try_from(self.sum()?).ok()?)?;
            } else if self.accept(">>") {
                value = value.checked_shr(u32::try_from(self.sum()?).ok()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.unary()?;
        loop {
            if self.accept("+") {
                value = value.wrapping_add(self.unary()?);
            } else if self.accept("-") {
                value = value.wrapping_sub(self.unary()?);
            } else {
                return Some(value);
            }
        }
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let value = if self.accept("~") {
            !self.unary()?
        } else if self.accept("(") {
            if self.cast() {
                self.unary()?
            } else {
                let value = self.or()?;
                if !self.accept(")") {
                    return None;
                }
                value
            }
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    /// Passes over `unsigned long)`, the rest of a cast.
    fn cast(&mut self) -> bool {
        let rest = self.rest.trim_start();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ' ';
        let Some((name, after)) = rest.split_once(')') else { return false };
        let is_type = rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(is_name);
        if is_type {
            self.rest = after;
        }
        is_type
    }

    fn number(&mut self) -> Option<u64> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_several_kernels() {
        for (text, value) in [
            ("(unsigned long)(((gfp_t)(0x400u|0x800u)) | ((gfp_t)0x40u))", 0xc40),
            ("( unsigned long)(( gfp_t)((((1UL))) << (3)))", 8),
            ("(((gfp_t)0xc40u) & ~((gfp_t)0x400u)) | 1", 0x841),
            ("16 + 2 - 1 << 1", 34),
        ] {
            assert_eq!(evaluate(text), Some(value), "{text}");
        }
        for text in ["", "(", "1 <<", "1 << 64", "((void *)0)", "x", "1 2", &"(".repeat(100_000)] {
            assert_eq!(evaluate(text), None, "{}", &text[..text.len().min(20)]);
        }
    }

    #[test]
    fn flags_are_written_as_a_kernel_does() {
        let print = "\"gfp_flags=%s\", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
                     {(unsigned long)(0x400u | 0x40u | 0x80u), \"GFP_KERNEL\"}, {0x100, \"__GFP_ZERO\"}, \
                     { 0, ((void *)0) } ) : \"none\"";
        let flags = Flags::parse(print, "gfp_flags");
        let text = |bits| {
            let mut out = Vec::new();
            flags.write(bits, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(0x5c0), "GFP_KERNEL|__GFP_ZERO");
        assert_eq!(text(0x4c0 | 0x2000), "GFP_KERNEL|0x2000");
        assert_eq!((text(0).as_str(), text(0x100).as_str()), ("none", "__GFP_ZERO"));
        assert_eq!(Flags::parse(print, "other"), Flags::default());
    }
}
