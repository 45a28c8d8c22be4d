//! Lines of the recording module: a word in capitals, words and `key=value` fields.

/// One line.
#[derive(Clone, Copy)]
pub struct Line<'a>(pub &'a str);

impl<'a> Line<'a> {
    /// The first word.
    pub fn word(self) -> &'a str {
        self.0.split(' ').next().unwrap_or_default()
    }

    /// What follows the first word.
    pub fn rest(self) -> &'a str {
        self.0.split_once(' ').map_or("", |(_, rest)| rest)
    }

    fn values(self, key: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        self.0
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .filter_map(move |(found, value)| (found == key).then_some(value))
    }

    /// The text of a field, if the line has it.
    pub fn find(self, key: &'a str) -> Option<&'a str> {
        self.values(key).next()
    }

    /// The text of a field.
    pub fn text(self, key: &'a str) -> Result<&'a str, String> {
        self.find(key).ok_or_else(|| format!("no field {key}= in: {}", self.0))
    }

    /// The number in a field.
    pub fn number(self, key: &'a str) -> Result<u64, String> {
        self.parse(self.text(key)?)
    }

    /// The number in a field that may be below zero: a difference, or a register that was logged as a whole.
    pub fn signed(self, key: &'a str) -> Result<i64, String> {
        self.parse_signed(self.text(key)?)
    }

    /// A counter of pages, to which CPUs add their changes late: below zero it reads as nothing
    /// (`zone_page_state`).
    pub fn counter(self, key: &'a str) -> Result<u64, String> {
        self.parse_counter(self.text(key)?)
    }

    /// The number in the last field of that name: some lines have a zone's value and a pageset's.
    pub fn last_number(self, key: &'a str) -> Result<u64, String> {
        let value = self.values(key).next_back();
        self.parse(value.ok_or_else(|| format!("no field {key}= in: {}", self.0))?)
    }

    /// The numbers of a field that is a list.
    pub fn numbers(self, key: &'a str) -> Result<Vec<u64>, String> {
        self.text(key)?.split(',').filter(|s| !s.is_empty()).map(|s| self.parse(s)).collect()
    }

    /// A number that stands somewhere in the line.
    pub fn parse(self, value: &str) -> Result<u64, String> {
        value.parse().map_err(|_| format!("{value:?} is no number, in: {}", self.0))
    }

    /// A counter that stands somewhere in the line.
    pub fn parse_counter(self, value: &str) -> Result<u64, String> {
        Ok(self.parse_signed(value)?.max(0).cast_unsigned())
    }

    fn parse_signed(self, value: &str) -> Result<i64, String> {
        value.parse().map_err(|_| format!("{value:?} is no number, in: {}", self.0))
    }

    /// The refusal of a line that nobody knows.
    pub fn unknown<T>(self) -> Result<T, String> {
        Err(format!("unknown line: {}", self.0))
    }
}

/// The lines of a text that say something: without those that every text begins and ends with.
pub fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    const FRAME: [&str; 3] = ["SYMS", "ORACLE", "ORACLE_DONE"];
    text.lines().map(Line).filter(|line| !line.0.is_empty() && !FRAME.contains(&line.word()))
}

/// The CPU that the module pinned itself to.
pub fn cpu(text: &str) -> Result<u32, String> {
    let line = text.lines().map(Line).find(|line| line.word() == "ORACLE");
    let cpu = line.ok_or("no line ORACLE")?.number("cpu")?;
    u32::try_from(cpu).map_err(|_| format!("CPU {cpu} is too large"))
}
