//! A pane as a table: lines are made for the rows on the screen only, for a machine may have 65 536 pagesets.

/// What a row is about, to find it again in the next sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    Node(u32),
    Zone(u32, String),
    /// A zone's free blocks.
    Blocks(u32, String),
    Pageset(u32, String, u32),
    Process(u32),
    /// A mark, by its word.
    Word(&'static str),
    Nothing,
}

/// Heading and rows.
pub(crate) struct Table<'a> {
    pub(crate) heading: String,
    pub(crate) rows: usize,
    pub(crate) line: Box<dyn Fn(usize) -> String + 'a>,
    pub(crate) item: Box<dyn Fn(usize) -> Item + 'a>,
}

impl<'a> Table<'a> {
    /// A table of the elements of a list.
    pub(crate) fn of<T: 'a>(
        heading: impl Into<String>,
        list: Vec<T>,
        line: impl Fn(&T) -> String + 'a,
        item: impl Fn(&T) -> Item + 'a,
    ) -> Table<'a> {
        let list = std::rc::Rc::new(list);
        let others = list.clone();
        Table {
            heading: heading.into(),
            rows: list.len(),
            line: Box::new(move |at| list.get(at).map_or_else(String::new, &line)),
            item: Box::new(move |at| others.get(at).map_or(Item::Nothing, &item)),
        }
    }

    /// Where an item is now: mostly where it was.
    pub(crate) fn find(&self, item: &Item, was_at: usize) -> Option<usize> {
        if *item == Item::Nothing {
            return None;
        }
        if was_at < self.rows && (self.item)(was_at) == *item {
            return Some(was_at);
        }
        (0..self.rows).find(|at| (self.item)(*at) == *item)
    }
}
