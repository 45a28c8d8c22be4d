//! Names of functions by their addresses: the text of `/proc/kallsyms`, which trace-cmd keeps in its files and perf does not.
//!
//! ```text
//! ffffffff8120a1b0 T get_page_from_freelist
//! ffffffffc0331000 t ext4_writepages [ext4]
//! ```

/// Functions of a kernel with its modules: some hundred thousand.
const FUNCTIONS_MAX: usize = 1 << 22;
/// No function is longer: what lies farther behind one is not its code.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;
/// The longest name, which each call of a chain repeats. `include/linux/kallsyms.h: KSYM_NAME_LEN`.
const NAME_BYTES_MAX: usize = 512;

/// Names of a kernel's functions, by address.
#[derive(Clone, Default)]
pub struct Symbols {
    functions: Vec<(u64, std::ops::Range<u32>)>,
    text: Vec<u8>,
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Symbols").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

impl Symbols {
    /// Reads the text of `/proc/kallsyms` as it was since the kernel's boot. Whoever may not see addresses gets zeroes for them, which
    /// name nothing.
    ///
    /// ```
    /// let symbols = nearpage_trace::Symbols::read(b"ffffffff8120a1b0 T get_page_from_freelist\n".to_vec());
    /// assert_eq!(symbols.name(0xffffffff8120a1c0), Some(&b"get_page_from_freelist"[..]));
    /// assert!(nearpage_trace::Symbols::read(b"0000000000000000 T hidden\n".to_vec()).is_empty());
    /// ```
    pub fn read(text: Vec<u8>) -> Symbols {
        let mut functions = Vec::new();
        let mut at = 0;
        for line in text.split(|byte| *byte == b'\n') {
            if let Some((address, name)) = function(line).filter(|(address, _)| *address != 0) {
                let place = |within: usize| u32::try_from(at + within).ok();
                let Some((begin, end)) = place(name.start).zip(place(name.end)) else { break };
                functions.push((address, begin..end));
            }
            at += line.len() + 1;
            if functions.len() == FUNCTIONS_MAX {
                break;
            }
        }
        functions.sort_by_key(|(address, _)| *address);
        Symbols { functions, text }
    }

    /// Whether no function has a name.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function that an address lies in.
    pub fn name(&self, address: u64) -> Option<&[u8]> {
        let after = self.functions.partition_point(|(begin, _)| *begin <= address);
        let (begin, name) = self.functions.get(after.checked_sub(1)?)?;
        (address - begin < FUNCTION_BYTES_MAX)
            .then(|| &self.text[name.start as usize..name.end as usize])
    }
}

/// Address and place of the name in a line, if it is of code.
fn function(line: &[u8]) -> Option<(u64, std::ops::Range<usize>)> {
    let space = memchr::memchr(b' ', line)?;
    let address = u64::from_str_radix(std::str::from_utf8(&line[..space]).ok()?, 16).ok()?;
    let [kind, b' ', name @ ..] = &line[space + 1..] else { return None };
    let is_end = |byte: &u8| !byte.is_ascii_graphic();
    let length = name.iter().position(is_end).unwrap_or(name.len()).min(NAME_BYTES_MAX);
    let begin = space + 3;
    (b"tTwW".contains(kind) && length > 0).then_some((address, begin..begin + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_function_before_it() {
        let text = "ffffffff81000200 t second\t[module]\nffffffff81000100 T first\n\
                    ffffffff81000300 D data\n0000000000000000 T hidden\nno symbol\n";
        let symbols = Symbols::read(text.into());
        let name =
            |address| symbols.name(address).map(|name| String::from_utf8_lossy(name).into_owned());
        assert_eq!(name(0xffff_ffff_8100_01ff).as_deref(), Some("first"));
        assert_eq!(name(0xffff_ffff_8100_0310).as_deref(), Some("second"));
        assert_eq!([name(0xffff_ffff_8100_00ff), name(5), name(u64::MAX)], [None, None, None]);
    }
}
