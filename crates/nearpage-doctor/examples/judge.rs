//! Says what about a machine hinders an allocator, and what to do about it.
//!
//! The argument is a copy of /sys and /proc (a folder or a tar archive). Without one it is this machine.

use std::error::Error;
use std::path::Path;

use nearpage_doctor::{Facts, Level, findings};
use nearpage_linux::Environment;
use nearpage_machine::{Budget, open_tree};

fn main() -> Result<(), Box<dyn Error>> {
    let facts = match std::env::args_os().nth(1) {
        Some(path) => Facts::read(&*open_tree(Path::new(&path), &Budget::DEFAULT)?),
        None => Facts::of_this_machine(&Environment::from_env()?),
    };
    for finding in findings(&facts).iter().filter(|finding| finding.level == Level::Problem) {
        println!("{} = {}: {}", finding.check, finding.found, finding.meaning);
        if let Some(advice) = &finding.advice {
            println!("    {advice}");
        }
    }
    Ok(())
}
