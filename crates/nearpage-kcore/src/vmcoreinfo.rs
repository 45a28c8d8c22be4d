//! VMCOREINFO: what a kernel tells about itself for those that read its memory. Lines `KEY=VALUE`.

use std::collections::HashMap;

/// Some kilobytes in any kernel; it has a page or two of memory.
pub(crate) const BYTES_MAX: usize = 64 << 10;

/// The text, by keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Vmcoreinfo(HashMap<String, String>);

impl Vmcoreinfo {
    pub fn parse(text: &str) -> Vmcoreinfo {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        Vmcoreinfo(lines.map(|(key, value)| (key.into(), value.trim().into())).collect())
    }

    pub fn release(&self) -> &str {
        self.0.get("OSRELEASE").map_or("", String::as_str)
    }

    /// The address of `SYMBOL(name)`.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.0.get(&format!("SYMBOL({name})"))?, 16).ok()
    }

    /// `NUMBER(name)`: decimal, or hexadecimal with `0x`.
    pub fn number(&self, name: &str) -> Option<i64> {
        let text = self.0.get(&format!("NUMBER({name})"))?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(|number| number as i64),
            None => text.parse().ok(),
        }
    }

    /// `SIZE(name)`.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.0.get(&format!("SIZE({name})"))?.parse().ok()
    }

    /// `OFFSET(name)`, of `structure.member`.
    pub fn offset(&self, name: &str) -> Option<u64> {
        self.0.get(&format!("OFFSET({name})"))?.parse().ok()
    }

    /// `LENGTH(name)`, of an array.
    pub fn length(&self, name: &str) -> Option<u64> {
        self.0.get(&format!("LENGTH({name})"))?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_kinds_are_read() {
        let text = "OSRELEASE=7.2.12+deb13\nSYMBOL(vmemmap)=ffd4000000000000\nSIZE(zone)=1856\n\
            OFFSET(page.lru)=8\nLENGTH(mem_section)=131072\nNUMBER(phys_base)=-16\nNUMBER(X)=0xffa0000000000000\n\
            NUMBER(bad)=x\ndamage\n";
        let info = Vmcoreinfo::parse(text);
        assert_eq!(info.release(), "7.2.12+deb13");
        assert_eq!(info.symbol("vmemmap"), Some(0xffd4_0000_0000_0000));
        assert_eq!((info.size("zone"), info.offset("page.lru")), (Some(1856), Some(8)));
        assert_eq!(
            (info.length("mem_section"), info.number("phys_base")),
            (Some(131_072), Some(-16))
        );
        assert_eq!(info.number("X"), Some(0xffa0_0000_0000_0000_u64 as i64));
        assert_eq!((info.number("bad"), info.symbol("none")), (None, None));
    }
}
