//! A machine: its nodes with CPUs and memory, and their distances as a table whose cells are the darker the farther.

use maud::{Markup, html};
use nearpage::TopologyBuf;
use nearpage_machine::idlist;
use nearpage_machine::size;
#[cfg(feature = "lab")]
use nearpage_sim::Machine;

/// What is drawn of a machine.
#[derive(Clone, Debug)]
pub struct MachineView {
    nodes: Vec<NodeView>,
    /// Row by row, in the order of the nodes.
    distances: Vec<u8>,
}

#[derive(Clone, Debug)]
struct NodeView {
    id: u32,
    cpus: Vec<u32>,
    bytes: u64,
}

impl MachineView {
    /// Of a simulated machine.
    #[cfg(feature = "lab")]
    pub fn of_simulated(machine: &Machine) -> MachineView {
        let nodes = machine.nodes.iter().map(|node| NodeView {
            id: node.id.0,
            cpus: node.cpus.iter().map(|cpu| cpu.0).collect(),
            bytes: node.bytes,
        });
        MachineView { nodes: nodes.collect(), distances: machine.distances.clone() }
    }

    /// Of a topology whose pages have 2 to the power of `page_shift` bytes.
    pub fn of_topology(topology: &TopologyBuf, page_shift: u32) -> MachineView {
        let nodes = topology.nodes.iter().map(|node| NodeView {
            id: node.id.0,
            cpus: node.cpus.iter().map(|cpu| cpu.0).collect(),
            bytes: node.memory.iter().map(|range| range.pages().0 << page_shift).sum(),
        });
        MachineView { nodes: nodes.collect(), distances: topology.distances.clone() }
    }

    /// The drawing as a fragment of HTML that brings its style along, for pages of others: a cell of a notebook. Text takes
    /// the colour of the text around it. `name` is escaped.
    ///
    /// ```
    /// use nearpage::{AddressMap, CpuId, NodeBuf, NodeId, PfnRange, TopologyBuf};
    /// use nearpage_report::MachineView;
    ///
    /// let memory = vec![PfnRange::new(0x10_0000, 0x10_8000)];
    /// let node = NodeBuf { id: NodeId(0), memory, cpus: vec![CpuId(0)], movable_from: None };
    /// let (nodes, distances) = (vec![node], vec![10]);
    /// let topology = TopologyBuf { nodes, distances, address_map: AddressMap::X86 };
    /// let drawn = MachineView::of_topology(&topology, 12).fragment("a < b");
    /// assert!(drawn.contains("a &lt; b") && drawn.contains("node 0"));
    /// ```
    pub fn fragment(&self, name: &str) -> String {
        const STYLE: &str = ".nearpage-machine .plots { display: flex; flex-wrap: wrap; gap: 1rem }
.nearpage-machine figure { margin: 0 }
.nearpage-machine figcaption b { display: block }
.nearpage-machine svg { display: block; max-width: 100%; height: auto }
.nearpage-machine svg text { fill: currentColor; font-family: system-ui, sans-serif }
.nearpage-machine svg .node { fill: none; stroke: currentColor; stroke-opacity: 0.4 }
.nearpage-machine svg .memory, .nearpage-machine svg .cell { fill: #c05621 }";
        html! {
            div.nearpage-machine {
                style { (maud::PreEscaped(STYLE)) }
                (self.draw(name))
            }
        }
        .into_string()
    }

    /// The id of the node at a position.
    #[cfg(feature = "lab")]
    pub(super) fn node_id(&self, position: usize) -> Option<u32> {
        self.nodes.get(position).map(|node| node.id)
    }

    /// Nodes, then distances.
    pub(super) fn draw(&self, name: &str) -> Markup {
        html! {
            div.plots {
                figure {
                    figcaption {
                        b { (name) ": nodes, CPUs, memory" }
                        (self.summary())
                    }
                    (self.draw_nodes())
                }
                figure {
                    figcaption {
                        b { (name) ": distances" }
                        "from the node of the row to that of the column; the stronger, the farther"
                    }
                    (self.draw_distances())
                }
            }
        }
    }

    fn summary(&self) -> String {
        let cpus: usize = self.nodes.iter().map(|node| node.cpus.len()).sum();
        let bytes = self.nodes.iter().map(|node| node.bytes).sum();
        format!("{} nodes, {cpus} CPUs, {}", self.nodes.len(), size::format(bytes))
    }

    fn draw_nodes(&self) -> Markup {
        let columns = self.nodes.len().clamp(1, 4);
        let width = WIDTH / columns;
        let height = self.nodes.len().div_ceil(columns) * NODE_HEIGHT;
        let largest = self.nodes.iter().map(|node| node.bytes).max().unwrap_or(0).max(1);
        let scale = width as f64 - 24.0;
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height)
                xmlns="http://www.w3.org/2000/svg" role="img" aria-label="nodes" {
                @for (at, node) in self.nodes.iter().enumerate() {
                    g transform=(format!("translate({} {})", at % columns * width, at / columns * NODE_HEIGHT)) {
                        rect.node x="2" y="2" width=(width - 4) height=(NODE_HEIGHT - 4) rx="4" {}
                        text x="12" y="20" font-size="13" font-weight="600" { "node " (node.id) }
                        text x="12" y="37" font-size="12" { (cpus(node, width)) }
                        text x="12" y="53" font-size="12" { (memory(node)) }
                        rect.memory x="12" y="60" height="5"
                            width=(format!("{:.1}", node.bytes as f64 / largest as f64 * scale)) {}
                    }
                }
            }
        }
    }

    fn draw_distances(&self) -> Markup {
        let count = self.nodes.len().max(1);
        let cell = ((WIDTH - HEADING) as f64 / count as f64).min(48.0);
        let side = HEADING as f64 + cell * count as f64;
        let farthest = f64::from(self.distances.iter().copied().max().unwrap_or(10));
        let nearest = f64::from(self.distances.iter().copied().min().unwrap_or(10));
        let strength = |distance: u8| {
            0.08 + 0.62 * (f64::from(distance) - nearest) / (farthest - nearest).max(1.0)
        };
        let font = (cell * 0.5).min(13.0);
        let centre = |at: usize| format!("{:.1}", HEADING as f64 + cell * (at as f64 + 0.5));
        let corner = |at: usize| format!("{:.1}", HEADING as f64 + cell * at as f64);
        html! {
            svg viewBox=(format!("0 0 {side:.0} {side:.0}")) width=(format!("{side:.0}")) height=(format!("{side:.0}"))
                xmlns="http://www.w3.org/2000/svg" role="img" aria-label="distances"
                text-anchor="middle" dominant-baseline="central" font-size=(format!("{font:.1}")) {
                @for (at, node) in self.nodes.iter().enumerate() {
                    text x=(centre(at)) y=(HEADING / 2) { (node.id) }
                    text x=(HEADING / 2) y=(centre(at)) { (node.id) }
                }
                @for (at, &distance) in self.distances.iter().enumerate() {
                    rect.cell x=(corner(at % count)) y=(corner(at / count)) width=(format!("{:.1}", cell - 1.0))
                        height=(format!("{:.1}", cell - 1.0)) fill-opacity=(format!("{:.2}", strength(distance))) {
                        title { (self.nodes[at / count].id) " to " (self.nodes[at % count].id) ": " (distance) }
                    }
                    @if cell >= NUMBERS_FROM {
                        text x=(centre(at % count)) y=(centre(at / count)) pointer-events="none" { (distance) }
                    }
                }
            }
        }
    }
}

/// Pixels of the drawings' own, before they are fitted to the page.
const WIDTH: usize = 480;
const NODE_HEIGHT: usize = 76;
const HEADING: usize = 24;
/// Cells that are smaller have no room for a number.
const NUMBERS_FROM: f64 = 14.0;

fn memory(node: &NodeView) -> String {
    if node.bytes == 0 { "no memory".into() } else { size::format(node.bytes) }
}

/// The CPUs as a list, or how many there are if that is too long.
fn cpus(node: &NodeView, width: usize) -> String {
    const LETTER: usize = 7;
    match &*node.cpus {
        [] => "no CPUs".into(),
        cpus => {
            let list = format!("CPU {}", idlist::format(cpus));
            let fits = list.len() * LETTER <= width - 20;
            if fits { list } else { format!("{} CPUs", cpus.len()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_any_size_are_drawn() {
        for nodes in [1, 2, 28, 100] {
            let mut machine = Machine::uniform(nodes, 3, 1 << 30);
            machine.nodes[0].cpus.clear();
            let drawn = MachineView::of_simulated(&machine).draw("small & large").into_string();
            let document = roxmltree::Document::parse(&drawn).unwrap();
            let cells =
                document.descendants().filter(|node| node.attribute("class") == Some("cell"));
            assert_eq!(cells.count() as u32, nodes * nodes);
            assert!(drawn.contains("no CPUs") && drawn.contains("small &amp; large"));
        }
    }
}
