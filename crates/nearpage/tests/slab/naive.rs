//! A slab allocator in obvious lines: vectors, oldest or first in front, and no locks. It predicts every address, but for
//! where the pages of a new slab are.

use std::collections::{BTreeMap, BTreeSet};

use nearpage::slab::LocalNode;
use nearpage::slab::geometry::Geometry;
use nearpage::slab::tunables::{BATCH_IDLE, BATCH_MAX, Tunables};
use nearpage::units::PfnRange;

/// Objects of one size that share a block of pages; `free` are those that lie in it.
#[derive(Debug)]
struct Slab {
    node: usize,
    first: u64,
    free: BTreeSet<u64>,
}

/// A node: slabs by their addresses.
#[derive(Debug, Default, Clone)]
struct Node {
    shared: Vec<u64>,
    aliens: Vec<Vec<u64>>,
    partial: Vec<u64>,
    empty: Vec<u64>,
    colour: u32,
    slabs: u64,
    free_objects: u32,
    shared_touched: bool,
    empty_touched: bool,
    next_reap: u64,
}

#[derive(Debug, Default, Clone)]
struct Stack {
    objects: Vec<u64>,
    touched: bool,
}

/// A CPU of the machine: its node, and the one that its objects come from.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    pub node: usize,
    pub effective: usize,
    pub reap_node: usize,
}

/// The machine, as far as it matters: nodes that have memory, and the order of fallback of each node.
#[derive(Debug, Clone)]
pub struct Machine {
    pub cpus: BTreeMap<u32, Cpu>,
    pub has_memory: Vec<bool>,
    pub fallback: Vec<Vec<usize>>,
    pub local: LocalNode,
}

impl Machine {
    /// The nearest node with memory.
    pub fn refresh(&mut self) {
        for cpu in self.cpus.values_mut() {
            cpu.effective = match self.local {
                LocalNode::OwnNode => cpu.node,
                LocalNode::NearestMemory => self.fallback[cpu.node][0],
            };
        }
    }
}

impl Machine {
    /// CPUs whose objects come from a node.
    pub fn cpus_of(&self, node: usize) -> u32 {
        self.cpus.values().filter(|cpu| cpu.effective == node).count() as u32
    }
}

/// A cache.
#[derive(Debug)]
pub struct Cache {
    geometry: Geometry,
    tunables: Tunables,
    slabs: BTreeMap<u64, Slab>,
    nodes: Vec<Node>,
    stacks: BTreeMap<u32, Stack>,
    pub held: BTreeSet<u64>,
}

impl Cache {
    pub fn new(geometry: Geometry, machine: &Machine) -> Self {
        let nodes = machine.has_memory.len();
        let node = Node { aliens: vec![Vec::new(); nodes], ..Node::default() };
        Self {
            geometry,
            tunables: Tunables::of(geometry.size, machine.cpus.len(), nodes, 4096),
            slabs: BTreeMap::new(),
            nodes: vec![node; nodes],
            stacks: machine.cpus.keys().map(|&cpu| (cpu, Stack::default())).collect(),
            held: BTreeSet::new(),
        }
    }

    /// What `node_stats` should say: slabs, objects in them, on the shared stack, on alien stacks.
    pub fn counts(&self, node: usize) -> [u64; 4] {
        let Node { slabs, shared, aliens, free_objects, .. } = &self.nodes[node];
        let alien: usize = aliens.iter().map(Vec::len).sum();
        [*slabs, *free_objects as u64, shared.len() as u64, alien as u64]
    }

    /// Pages of slabs in a range of memory.
    pub fn pages_in(&self, range: PfnRange) -> u64 {
        let blocks = self.slabs.range(range.start.0 << 12..range.end.0 << 12);
        (blocks.count() as u64) << self.geometry.order.0
    }

    pub fn in_stacks(&self) -> u64 {
        self.stacks.values().map(|stack| stack.objects.len() as u64).sum()
    }

    /// An object for a CPU. `block` is where a slab is that this needs anew.
    pub fn alloc(&mut self, machine: &Machine, cpu: u32, block: u64) -> u64 {
        let node = machine.cpus[&cpu].effective;
        let object = self.alloc_near(machine, cpu, node, block);
        let object = object.unwrap_or_else(|| self.alloc_on(machine, node, block));
        assert!(self.held.insert(object), "{object:#x} is held already");
        object
    }

    fn alloc_near(&mut self, machine: &Machine, cpu: u32, node: usize, block: u64) -> Option<u64> {
        let stack = self.stacks.get_mut(&cpu).unwrap();
        if let Some(object) = stack.objects.pop() {
            stack.touched = true;
            return Some(object);
        }
        let batch = self.tunables.batch;
        let batch = if stack.touched { batch } else { batch.min(BATCH_IDLE) } as usize;
        if self.nodes[node].shared.is_empty() && !self.has_objects(node) {
            self.nodes[node].empty_touched = true;
            self.grow(machine, node, block)?;
        }
        let shared_len = self.nodes[node].shared.len();
        let mut refill: Vec<u64> = if shared_len > 0 {
            self.nodes[node].shared_touched = true;
            self.nodes[node].shared.split_off(shared_len.saturating_sub(batch))
        } else {
            // The first one is used at once, the last one last.
            let mut taken: Vec<u64> = std::iter::from_fn(|| self.take(node)).take(batch).collect();
            taken.reverse();
            taken
        };
        let object = refill.pop();
        let stack = self.stacks.get_mut(&cpu).unwrap();
        stack.objects = refill;
        stack.touched = true;
        object
    }

    /// An object of a node without the stacks, or of one after it.
    pub fn alloc_node(&mut self, machine: &Machine, cpu: u32, node: usize, block: u64) -> u64 {
        if machine.cpus[&cpu].effective == node {
            return self.alloc(machine, cpu, block);
        }
        let object = self.alloc_on(machine, node, block);
        assert!(self.held.insert(object), "{object:#x} is held already");
        object
    }

    fn alloc_on(&mut self, machine: &Machine, node: usize, block: u64) -> u64 {
        if self.has_objects(node) {
            return self.take(node).unwrap();
        }
        self.nodes[node].empty_touched = true;
        if self.grow(machine, node, block).is_some() {
            return self.take(node).unwrap();
        }
        let with_objects = machine.fallback[node].iter().find(|&&node| self.has_objects(node));
        let node = match with_objects {
            Some(&node) => node,
            None => {
                let near = machine.fallback[node][0];
                self.nodes[node].colour = self.next_colour(node);
                self.add(near, block, self.last_colour(node));
                near
            }
        };
        self.take(node).unwrap()
    }

    fn has_objects(&self, node: usize) -> bool {
        !self.nodes[node].partial.is_empty() || !self.nodes[node].empty.is_empty()
    }

    /// The lowest object of the first slab that has one.
    fn take(&mut self, node: usize) -> Option<u64> {
        let lists = &mut self.nodes[node];
        if lists.partial.is_empty() {
            lists.empty_touched = true;
            if lists.empty.is_empty() {
                return None;
            }
            lists.partial.push(lists.empty.remove(0));
        }
        let at = lists.partial[0];
        let slab = self.slabs.get_mut(&at).unwrap();
        let object = slab.free.pop_first().unwrap();
        if slab.free.is_empty() {
            lists.partial.remove(0);
        }
        lists.free_objects -= 1;
        Some(object)
    }

    fn next_colour(&self, node: usize) -> u32 {
        let next = self.nodes[node].colour + 1;
        if next >= self.geometry.colours { 0 } else { next }
    }

    /// The colour before the next one.
    fn last_colour(&self, node: usize) -> u32 {
        match self.nodes[node].colour {
            0 => self.geometry.colours.saturating_sub(1),
            next => next - 1,
        }
    }

    fn grow(&mut self, machine: &Machine, node: usize, block: u64) -> Option<()> {
        self.nodes[node].colour = self.next_colour(node);
        if !machine.has_memory[node] {
            // Once more for the way without stacks.
            return None;
        }
        self.add(node, block, self.last_colour(node));
        Some(())
    }

    fn add(&mut self, node: usize, block: u64, colour: u32) {
        let first = block + self.geometry.first_of_colour(colour) as u64;
        let objects =
            (0..self.geometry.objects as u64).map(|at| first + at * self.geometry.size as u64);
        let slab = Slab { node, first, free: objects.collect() };
        assert!(self.slabs.insert(block, slab).is_none(), "the block {block:#x} is a slab");
        self.nodes[node].empty.push(block);
        self.nodes[node].slabs += 1;
        self.nodes[node].free_objects += self.geometry.objects;
    }

    fn slab_of(&self, object: u64) -> u64 {
        let (&at, slab) = self.slabs.range(..=object).next_back().expect("an object has a slab");
        assert!(object >= slab.first);
        at
    }

    /// The node that an object is of.
    pub fn node_of(&self, object: u64) -> usize {
        self.slabs[&self.slab_of(object)].node
    }

    pub fn free(&mut self, machine: &Machine, cpu: u32, object: u64) {
        assert!(self.held.remove(&object));
        let (here, home) = (machine.cpus[&cpu].effective, self.node_of(object));
        if here == home {
            self.free_near(machine, cpu, here, object)
        } else {
            self.free_far(machine, here, home, object)
        }
    }

    fn free_near(&mut self, machine: &Machine, cpu: u32, node: usize, object: u64) {
        let stack = self.stacks.get_mut(&cpu).unwrap();
        if stack.objects.len() == self.tunables.limit as usize {
            let room = self.tunables.shared_limit() as usize - self.nodes[node].shared.len();
            let batch = self.tunables.batch as usize;
            let most = if room > 0 { batch.min(room) } else { batch };
            let oldest: Vec<u64> = stack.objects.drain(..most).collect();
            if room > 0 {
                self.nodes[node].shared.extend(oldest);
            } else {
                oldest.into_iter().for_each(|object| self.put(machine, object));
            }
        }
        self.stacks.get_mut(&cpu).unwrap().objects.push(object);
    }

    fn free_far(&mut self, machine: &Machine, here: usize, home: usize, object: u64) {
        let alien = &mut self.nodes[here].aliens[home];
        if alien.len() < self.tunables.alien_limit as usize {
            return alien.push(object);
        }
        let full = std::mem::replace(alien, vec![object]);
        self.bring_home(machine, home, full);
    }

    fn bring_home(&mut self, machine: &Machine, home: usize, mut objects: Vec<u64>) {
        let room = self.tunables.shared_limit() as usize - self.nodes[home].shared.len();
        let rest = objects.split_off(objects.len().min(room));
        self.nodes[home].shared.extend(objects);
        rest.into_iter().for_each(|object| self.put(machine, object));
    }

    /// Back into the slab.
    fn put(&mut self, machine: &Machine, object: u64) {
        let at = self.slab_of(object);
        let slab = self.slabs.get_mut(&at).unwrap();
        let node = slab.node;
        assert!(slab.free.insert(object));
        let (free, objects) = (slab.free.len() as u32, self.geometry.objects);
        let lists = &mut self.nodes[node];
        lists.free_objects += 1;
        if free < objects {
            if free == 1 {
                lists.partial.push(at);
            }
            return;
        }
        lists.partial.retain(|&slab| slab != at);
        let near = machine.cpus_of(node);
        if lists.free_objects > self.tunables.free_limit(near, objects) {
            lists.free_objects -= objects;
            lists.slabs -= 1;
            self.slabs.remove(&at);
        } else {
            lists.empty.insert(0, at);
        }
    }

    /// All objects of a CPU's stack go back.
    pub fn flush(&mut self, machine: &Machine, cpu: u32) {
        let objects = std::mem::take(&mut self.stacks.get_mut(&cpu).unwrap().objects);
        objects.into_iter().for_each(|object| self.put(machine, object));
    }

    /// A round of reaping, at a time.
    pub fn reap(&mut self, machine: &Machine, cpu: u32, now: u64) {
        let Cpu { effective: node, reap_node, .. } = machine.cpus[&cpu];
        let alien = std::mem::take(&mut self.nodes[node].aliens[reap_node]);
        self.bring_home(machine, reap_node, alien);
        self.reap_node(machine, node, now);
        if machine.cpus_of(reap_node) == 0 {
            self.drain_aliens(machine, reap_node);
            self.reap_node(machine, reap_node, now);
        }
        let stack = self.stacks.get_mut(&cpu).unwrap();
        if !std::mem::take(&mut stack.touched) {
            let held = stack.objects.len() as u32;
            let most = Tunables::reaped(self.tunables.limit, held) as usize;
            let oldest: Vec<u64> = stack.objects.drain(..most).collect();
            oldest.into_iter().for_each(|object| self.put(machine, object));
        }
    }

    fn reap_node(&mut self, machine: &Machine, node: usize, now: u64) {
        let lists = &mut self.nodes[node];
        if now < lists.next_reap {
            return;
        }
        lists.next_reap = now + 4_000_000_000;
        let mut oldest = Vec::new();
        if !std::mem::take(&mut lists.shared_touched) {
            let held = lists.shared.len() as u32;
            let most = Tunables::reaped(self.tunables.shared_limit(), held) as usize;
            oldest = lists.shared.drain(..most).collect();
        }
        if !std::mem::take(&mut lists.empty_touched) {
            let objects = self.geometry.objects;
            let near = machine.cpus_of(node);
            let limit = self.tunables.free_limit(near, objects);
            for _ in 0..limit.div_ceil(5 * objects) {
                let Some(slab) = lists.empty.pop() else { break };
                lists.free_objects -= objects;
                lists.slabs -= 1;
                self.slabs.remove(&slab);
            }
        }
        oldest.into_iter().for_each(|object| self.put(machine, object));
    }

    /// Everything goes back.
    pub fn shrink(&mut self, machine: &Machine) {
        let cpus: Vec<u32> = self.stacks.keys().copied().collect();
        cpus.into_iter().for_each(|cpu| self.flush(machine, cpu));
        (0..self.nodes.len()).for_each(|node| self.drain_aliens(machine, node));
        (0..self.nodes.len()).for_each(|node| self.shrink_node(machine, node));
    }

    /// After nodes of CPUs changed: a node that no CPU looks to keeps nothing ready.
    pub fn settle(&mut self, machine: &Machine) {
        for node in (0..self.nodes.len()).filter(|&node| machine.cpus_of(node) == 0) {
            self.drain_aliens(machine, node);
            self.shrink_node(machine, node);
        }
    }

    fn drain_aliens(&mut self, machine: &Machine, node: usize) {
        for home in 0..self.nodes.len() {
            let alien = std::mem::take(&mut self.nodes[node].aliens[home]);
            self.bring_home(machine, home, alien);
        }
    }

    fn shrink_node(&mut self, machine: &Machine, node: usize) {
        // Batches from the top.
        while let shared @ 1.. = self.nodes[node].shared.len() {
            let batch = self.nodes[node].shared.split_off(shared.saturating_sub(BATCH_MAX));
            batch.into_iter().for_each(|object| self.put(machine, object));
        }
        for slab in std::mem::take(&mut self.nodes[node].empty) {
            self.nodes[node].free_objects -= self.geometry.objects;
            self.nodes[node].slabs -= 1;
            self.slabs.remove(&slab);
        }
    }
}
