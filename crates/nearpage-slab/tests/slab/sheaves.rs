//! What a CPU has of a cache, in obvious lines: one stack, or two sheaves that change places; and the barn of a node.

/// Objects of a CPU: a stack, or a main and a spare sheaf. The last object of a vector goes first.
#[derive(Debug, Default, Clone)]
pub struct Stack {
    main: Vec<u64>,
    spare: Vec<u64>,
    has_spare: bool,
    /// Objects of main, and of spare, at most.
    each: usize,
    pub touched: bool,
}

impl Stack {
    pub fn new(has_spare: bool) -> Self {
        Self { has_spare, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.main.len() + self.spare.len()
    }

    /// Objects at most.
    pub fn limit(&self) -> usize {
        if self.has_spare { 2 * self.each } else { self.each }
    }

    pub fn set_limit(&mut self, limit: usize) {
        let all = self.drain_oldest(self.len());
        self.each = if self.has_spare { limit / 2 } else { limit };
        self.lay_out(all);
    }

    /// The oldest objects fill the spare, if they are more than main holds.
    fn lay_out(&mut self, mut all: Vec<u64>) {
        if self.has_spare && all.len() > self.each {
            self.main = all.split_off(self.each);
            self.spare = all;
        } else {
            self.main = all;
        }
    }

    pub fn push(&mut self, object: u64) -> bool {
        if self.has_spare && self.main.len() == self.each && self.spare.is_empty() {
            std::mem::swap(&mut self.main, &mut self.spare);
        }
        let has_room = self.main.len() < self.each;
        if has_room {
            self.main.push(object);
        }
        has_room
    }

    pub fn pop(&mut self) -> Option<u64> {
        if self.main.is_empty() {
            std::mem::swap(&mut self.main, &mut self.spare);
        }
        let object = self.main.pop()?;
        self.touched = true;
        Some(object)
    }

    /// Fills what is empty; returns what there is no room for.
    pub fn fill(&mut self, mut objects: Vec<u64>) -> Vec<u64> {
        assert_eq!(self.len(), 0);
        self.touched = true;
        let rest = objects.split_off(objects.len().min(self.limit()));
        self.lay_out(objects);
        rest
    }

    /// The main sheaf, which is full.
    pub fn take_main(&mut self) -> Vec<u64> {
        self.touched |= !self.main.is_empty();
        std::mem::take(&mut self.main)
    }

    pub fn drain_oldest(&mut self, objects: usize) -> Vec<u64> {
        let mut all = std::mem::take(&mut self.spare);
        all.append(&mut self.main);
        let rest = all.split_off(objects.min(all.len()));
        self.lay_out(rest);
        all
    }

    pub fn objects(&self) -> impl Iterator<Item = u64> {
        self.spare.iter().chain(&self.main).copied()
    }
}

/// Full sheaves of a node, the oldest first.
#[derive(Debug, Default, Clone)]
pub struct Barn {
    pub sheaves: Vec<Vec<u64>>,
    pub limit: usize,
    pub touched: bool,
}

impl Barn {
    pub fn objects(&self) -> impl Iterator<Item = u64> {
        self.sheaves.iter().flatten().copied()
    }
}
