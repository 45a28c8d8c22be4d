//! Which node a CPU is of.

use crate::sample::NodeSample;

/// CPUs that are looked at: more than Linux may have.
const CPUS_MOST: usize = 1 << 16;
/// What stands for no node.
const NONE: u32 = u32::MAX;

/// The node of each CPU, by the lists of the nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CpuNodes {
    /// The lists that it was made from, to see that they changed.
    lists: Vec<(u32, String)>,
    nodes: Vec<u32>,
}

impl CpuNodes {
    /// Follows CPUs and nodes that come and go.
    pub(crate) fn follow(&mut self, nodes: &[NodeSample]) {
        let now = nodes.iter().map(|node| (node.node, &node.cpus));
        if self.lists.iter().map(|(node, list)| (*node, list)).eq(now) {
            return;
        }
        self.lists = nodes.iter().map(|node| (node.node, node.cpus.clone())).collect();
        self.nodes.clear();
        for node in nodes {
            for (first, last) in ranges(&node.cpus) {
                if self.nodes.len() <= last {
                    self.nodes.resize(last + 1, NONE);
                }
                self.nodes[first..=last].fill(node.node);
            }
        }
    }

    pub(crate) fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.get(cpu as usize).copied().filter(|node| *node != NONE)
    }
}

/// Ranges of a list as the kernel writes it: `0-3,8`. Others are passed over.
fn ranges(list: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < CPUS_MOST).then_some((first, last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_follow_the_lists_of_nodes() {
        let node = |node, cpus: &str| NodeSample { node, cpus: cpus.into(), ..Default::default() };
        let mut cpus = CpuNodes::default();
        cpus.follow(&[node(0, "0-1,4"), node(2, "3"), node(5, ""), node(6, "9-7,x,99999999")]);
        let nodes: Vec<_> = (0..6).map(|cpu| cpus.node_of(cpu)).collect();
        assert_eq!(nodes, [Some(0), Some(0), None, Some(2), Some(0), None]);
        cpus.follow(&[node(2, "0-1")]);
        assert_eq!((cpus.node_of(0), cpus.node_of(4)), (Some(2), None));
    }
}
