//! A writer of BTF: types with an id each.

/// BTF under way.
#[derive(Debug, Default)]
pub struct Types {
    types: Vec<u8>,
    texts: Vec<u8>,
    count: u32,
}

/// A member: its name, its type, its offset in bytes.
pub type Member<'a> = (&'a str, u32, u64);

impl Types {
    pub fn new() -> Types {
        Types { texts: vec![0], ..Types::default() }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.texts.len() as u32;
        self.texts.extend_from_slice(name.as_bytes());
        self.texts.push(0);
        at
    }

    fn head(&mut self, name: &str, kind: u32, count: usize, size_or_type: u32) -> u32 {
        let name = self.name(name);
        for word in [name, (kind << 24) | count as u32, size_or_type] {
            self.words(&[word]);
        }
        self.count += 1;
        self.count
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.types.extend_from_slice(&word.to_le_bytes()));
    }

    pub fn int(&mut self, name: &str, bytes: u32, is_signed: bool) -> u32 {
        let id = self.head(name, 1, 0, bytes);
        self.words(&[(u32::from(is_signed) << 24) | (bytes * 8)]);
        id
    }

    pub fn pointer(&mut self) -> u32 {
        self.head("", 2, 0, 0)
    }

    pub fn typedef(&mut self, name: &str, of: u32) -> u32 {
        self.head(name, 8, 0, of)
    }

    pub fn array(&mut self, of: u32, count: u32) -> u32 {
        let id = self.head("", 3, 0, 0);
        self.words(&[of, of, count]);
        id
    }

    pub fn structure(&mut self, name: &str, bytes: u64, members: &[Member<'_>]) -> u32 {
        let id = self.head(name, 4, members.len(), bytes as u32);
        for (name, of, offset) in members {
            let name = self.name(name);
            self.words(&[name, *of, *offset as u32 * 8]);
        }
        id
    }

    pub fn enumeration(&mut self, name: &str, values: &[(&str, u64)]) -> u32 {
        let id = self.head(name, 6, values.len(), 4);
        for (name, value) in values {
            let name = self.name(name);
            self.words(&[name, *value as u32]);
        }
        id
    }

    pub fn finish(self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types, texts) = (self.types.len() as u32, self.texts.len() as u32);
        for word in [24, 0, types, types, texts] {
            bytes.extend_from_slice(&u32::to_le_bytes(word));
        }
        [bytes, self.types, self.texts].concat()
    }
}
