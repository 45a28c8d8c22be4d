//! The command line: words of the form `name=number`.

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Operations of each CPU in the stress.
    pub operations: u32,
    /// Where all random numbers come from.
    pub seed: u64,
    /// From timer interrupt to timer interrupt.
    pub timer_ns: u32,
    /// Whether memory will be plugged in.
    pub plugs: bool,
    /// Count instructions, and nothing else.
    pub instructions: bool,
}

impl Options {
    /// Reads a command line; words that mean nothing are left out.
    pub fn parse(line: &[u8]) -> Self {
        let mut options = Self {
            operations: 20_000,
            seed: 1,
            timer_ns: 200_000,
            plugs: false,
            instructions: false,
        };
        for word in line.split(u8::is_ascii_whitespace) {
            let Ok(word) = core::str::from_utf8(word) else { continue };
            let Some((name, value)) = word.split_once('=') else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            match name {
                "operations" => options.operations = value as u32,
                "seed" => options.seed = value,
                "timer_ns" => options.timer_ns = value as u32,
                "plugs" => options.plugs = value != 0,
                "instructions" => options.instructions = value != 0,
                _ => {}
            }
        }
        options
    }
}
