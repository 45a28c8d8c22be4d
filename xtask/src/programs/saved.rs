//! Measured rows in a file, so that a long table can be made in pieces: a JSON object a row, each in a line.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, OpenOptions};
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::figures::Measured;
use super::mallocs::Malloc;
use super::rows::Row;

/// The file, and what a row in it must be of to count.
pub(super) struct Saved {
    path: PathBuf,
    columns: Vec<String>,
    /// Of the library of nearpage's malloc: figures of two do not belong into one table.
    library: String,
    rows: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    row: String,
    columns: Vec<String>,
    library: String,
    allocations: u64,
    modes: Vec<(String, f64)>,
    /// By column, a triple a round.
    rounds: Vec<Vec<[f64; 3]>>,
}

impl Saved {
    /// Reads the file, if it is there.
    pub fn open(path: &Path, mallocs: &[Malloc], library: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let read = |(at, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let what = "a row that this command wrote, a JSON object, was expected";
                io::Error::other(format!("line {}: {what}: {error}", at + 1))
            })
        };
        let rows = text.lines().enumerate().map(read).collect::<io::Result<_>>()?;
        let mut hasher = DefaultHasher::new();
        fs::read(library)?.hash(&mut hasher);
        Ok(Self {
            path: path.to_owned(),
            columns: mallocs.iter().map(|malloc| malloc.name.to_owned()).collect(),
            library: format!("{:016x}", hasher.finish()),
            rows,
        })
    }

    /// A row that was measured before: the same columns and library, and as many rounds.
    pub fn find(&self, row: &Row, rounds: u32) -> Option<Measured> {
        let is_this = |record: &&Record| {
            record.row == row.name
                && record.columns == self.columns
                && record.library == self.library
                && record.rounds.len() == self.columns.len()
                && record.rounds.iter().all(|of_malloc| of_malloc.len() == rounds as usize)
        };
        let record = self.rows.iter().rev().find(is_this)?;
        let mut measured = Measured::new(row, self.columns.len());
        measured.rounds.clone_from(&record.rounds);
        measured.modes.clone_from(&record.modes);
        measured.allocations = record.allocations;
        Some(measured)
    }

    /// Adds a row.
    pub fn add(&self, measured: &Measured) -> io::Result<()> {
        let record = Record {
            row: measured.name.to_owned(),
            columns: self.columns.clone(),
            library: self.library.clone(),
            allocations: measured.allocations,
            modes: measured.modes.clone(),
            rounds: measured.rounds.clone(),
        };
        let line = serde_json::to_string(&record)?;
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::mallocs::Way;
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn a_row_comes_back_for_the_same_columns_library_and_rounds_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, library) = (folder.path().join("rows"), folder.path().join("library"));
        let malloc =
            |name| Malloc { name, library: PathBuf::new(), is_nearpage: false, way: Way::Named };
        let two = [malloc("glibc"), malloc("nearpage")];
        fs::write(&library, "one").expect("written");
        let open = |mallocs: &[Malloc]| Saved::open(&path, mallocs, &library).expect("readable");
        let row = &ROWS[0];
        let mut measured = Measured::new(row, 2);
        measured.rounds = vec![vec![[1.0, 2.0, 3.0]; 4]; 2];
        measured.modes = vec![("hardened".to_owned(), 1.5)];
        open(&two).add(&measured).expect("added");
        let found = open(&two).find(row, 4).expect("it is there");
        assert_eq!((&found.rounds, &found.modes), (&measured.rounds, &measured.modes));
        assert!(open(&two).find(row, 5).is_none() && open(&two).find(&ROWS[1], 4).is_none());
        assert!(open(&two[..1]).find(row, 4).is_none());
        fs::write(&library, "another").expect("written");
        assert!(open(&two).find(row, 4).is_none());
        fs::write(&path, "no row\n").expect("written");
        let error = Saved::open(&path, &two, &library).err().expect("refused").to_string();
        assert!(error.starts_with("line 1: a row that this command wrote"), "{error}");
    }
}
