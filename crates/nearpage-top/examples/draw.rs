//! A sample of this machine, drawn into a buffer.

use nearpage_machine::FolderTree;
use nearpage_top::{Shown, View};
use nearpage_watch::{Pagesets, Sampler};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tree = Box::new(FolderTree::new("/"));
    let now = Sampler::new(tree).with_pagesets(Pagesets::EachCpu).sample();
    let mut terminal = Terminal::new(TestBackend::new(80, 24))?;
    let mut view = View::default();
    terminal.draw(|frame| view.draw(frame, &Shown::new("this machine", None, &now)))?;
    assert!(terminal.backend().to_string().contains("1 nodes"));
    Ok(())
}
