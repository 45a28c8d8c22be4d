//! A slab allocator in obvious lines: vectors, oldest or first in front, and no locks. It predicts every address, but for
//! where the pages of a new slab are, and whether a full node has some.

use std::collections::{BTreeMap, BTreeSet};

use nearpage::PfnRange;
use nearpage_slab::internals::{BATCH_IDLE, BATCH_MAX, Tunables};
use nearpage_slab::{Geometry, LocalNode, SlabRules};

use crate::sheaves::{Barn, Stack};

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
    shared_limit: usize,
    aliens: Vec<Vec<u64>>,
    alien_limit: usize,
    barn: Barn,
    partial: Vec<u64>,
    empty: Vec<u64>,
    colour: u32,
    slabs: u64,
    free_objects: u32,
    free_limit: u32,
    shared_touched: bool,
    empty_touched: bool,
    next_reap: u64,
}

/// A CPU of the machine: its node, and the one that its objects come from.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    pub node: usize,
    pub effective: usize,
    pub is_on: bool,
    pub reap_node: usize,
}

/// How an object is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// From one node alone.
    pub strict: bool,
    /// By who may wait.
    pub blocks: bool,
}

/// The machine, as far as it matters.
#[derive(Debug, Clone)]
pub struct Machine {
    pub cpus: BTreeMap<u32, Cpu>,
    pub has_memory: Vec<bool>,
    /// Somebody else took all pages that there were.
    pub is_full: Vec<bool>,
    pub is_private: Vec<bool>,
    /// By node: those with memory that all may use, nearest first.
    pub fallback: Vec<Vec<usize>>,
    /// Memory, and whose it is.
    pub ranges: Vec<(PfnRange, usize)>,
    pub local: LocalNode,
    pub rules: SlabRules,
}

impl Machine {
    /// The node that objects come from for a CPU of a node.
    pub fn effective_of(&self, node: usize) -> usize {
        match self.local {
            LocalNode::OwnNode if !self.is_private[node] => node,
            _ => self.fallback[node][0],
        }
    }

    fn has_sheaves(&self) -> bool {
        self.rules != SlabRules::Slab2010
    }

    /// Whether slabs may lie on a node without being asked to.
    fn is_open(&self, node: usize) -> bool {
        self.has_memory[node] && !self.is_private[node]
    }

    fn has_barn(&self, node: usize) -> bool {
        self.rules == SlabRules::Sheaves7_1 || self.has_sheaves() && self.is_open(node)
    }

    /// Whether a CPU that looks to `here` keeps objects of `home`.
    pub fn keeps(&self, here: usize, home: usize) -> bool {
        here == home || self.rules == SlabRules::Sheaves7_1 && !self.is_open(here)
    }

    /// CPUs whose objects come from a node.
    pub fn cpus_of(&self, node: usize) -> u32 {
        let looks = |cpu: &&Cpu| cpu.is_on && cpu.effective == node;
        self.cpus.values().filter(looks).count() as u32
    }

    pub fn cpus_on(&self) -> u64 {
        self.cpus.values().filter(|cpu| cpu.is_on).count() as u64
    }

    pub fn node_of(&self, address: u64) -> usize {
        let holds = |(range, _): &&(PfnRange, usize)| {
            (range.start.0 << 12..range.end.0 << 12).contains(&address)
        };
        self.ranges.iter().find(holds).expect("an address of the machine").1
    }
}

/// A cache.
#[derive(Debug)]
pub struct Cache {
    pub geometry: Geometry,
    tunables: Tunables,
    slabs: BTreeMap<u64, Slab>,
    nodes: Vec<Node>,
    stacks: BTreeMap<u32, Stack>,
    pub held: BTreeSet<u64>,
}

impl Cache {
    /// A cache without limits: [`set_limits`](Self::set_limits) is next.
    pub fn new(geometry: Geometry, machine: &Machine) -> Self {
        let nodes = machine.has_memory.len();
        let node = Node { aliens: vec![Vec::new(); nodes], ..Node::default() };
        Self {
            geometry,
            tunables: Tunables::default(),
            slabs: BTreeMap::new(),
            nodes: vec![node; nodes],
            stacks: machine
                .cpus
                .keys()
                .map(|&cpu| (cpu, Stack::new(machine.has_sheaves())))
                .collect(),
            held: BTreeSet::new(),
        }
    }

    /// What `node_stats` should say: slabs, objects in them, on the shared stack, on alien stacks, in the barn.
    pub fn counts(&self, node: usize) -> [u64; 5] {
        let Node { slabs, shared, aliens, barn, free_objects, .. } = &self.nodes[node];
        let alien: usize = aliens.iter().map(Vec::len).sum();
        let barn = barn.objects().count() as u64;
        [*slabs, *free_objects as u64, shared.len() as u64, alien as u64, barn]
    }

    /// Pages of slabs in a range of memory.
    pub fn pages_in(&self, range: PfnRange) -> u64 {
        let blocks = self.slabs.range(range.start.0 << 12..range.end.0 << 12);
        (blocks.count() as u64) << self.geometry.order.0
    }

    pub fn in_stacks(&self) -> u64 {
        self.stacks.values().map(|stack| stack.len() as u64).sum()
    }

    /// Objects on stacks, in barns and on shared stacks of another node than theirs.
    pub fn foreign(&self, machine: &Machine) -> u64 {
        let on_cpus = self.stacks.iter().flat_map(|(cpu, stack)| {
            let here = machine.cpus[cpu].effective;
            stack.objects().filter(move |&object| self.node_of(object) != here)
        });
        let on_nodes = self.nodes.iter().enumerate().flat_map(|(here, node)| {
            let all = node.shared.iter().copied().chain(node.barn.objects());
            all.filter(move |&object| self.node_of(object) != here)
        });
        (on_cpus.count() + on_nodes.count()) as u64
    }

    /// Slabs of which objects are not at home.
    pub fn slabs_in_use(&self) -> u64 {
        let in_use = |slab: &&Slab| (slab.free.len() as u32) < self.geometry.objects;
        self.slabs.values().filter(in_use).count() as u64
    }

    /// What may be kept; what is kept above that goes home.
    pub fn set_limits(&mut self, machine: &Machine, tunables: Tunables) {
        self.tunables = tunables;
        let mut limits = Vec::new();
        for cpu in self.stacks.keys() {
            let limit = if machine.cpus[cpu].is_on { tunables.limit as usize } else { 0 };
            limits.push((*cpu, limit));
        }
        for node in 0..self.nodes.len() {
            let lists = &mut self.nodes[node];
            lists.shared_limit = tunables.shared_limit() as usize;
            lists.alien_limit = tunables.alien_limit as usize;
            lists.free_limit = tunables.free_limit(machine.cpus_of(node), self.geometry.objects);
            if lists.shared.len() > lists.shared_limit {
                self.empty_shared(node);
            }
            let barn = &mut self.nodes[node].barn;
            barn.limit = tunables.barn_sheaves as usize;
            if barn.sheaves.iter().any(|sheaf| sheaf.len() != tunables.batch as usize) {
                self.empty_barn(node);
            }
            for home in 0..self.nodes.len() {
                if self.nodes[node].aliens[home].len() > self.nodes[node].alien_limit {
                    self.drain_alien(node, home);
                }
            }
        }
        for (cpu, limit) in limits {
            let stack = self.stacks.get_mut(&cpu).unwrap();
            let excess = stack.drain_oldest(stack.len().saturating_sub(limit));
            stack.set_limit(limit);
            excess.into_iter().for_each(|object| self.put(object));
        }
    }

    /// An object for a CPU, or `None` if there can be none. `seen` is the block that it lies in, if there is one.
    pub fn alloc(
        &mut self,
        machine: &Machine,
        cpu: u32,
        seen: Option<u64>,
        asked: Asked,
    ) -> Option<u64> {
        let Cpu { node, effective, is_on, .. } = machine.cpus[&cpu];
        let object = match is_on {
            true => self
                .alloc_near(machine, cpu, effective, seen, asked)
                .or_else(|| self.alloc_on(machine, effective, seen, asked))?,
            false => self.alloc_on(machine, machine.effective_of(node), seen, asked)?,
        };
        assert!(self.held.insert(object), "{object:#x} is held already");
        Some(object)
    }

    fn alloc_near(
        &mut self,
        machine: &Machine,
        cpu: u32,
        node: usize,
        seen: Option<u64>,
        asked: Asked,
    ) -> Option<u64> {
        let stack = self.stacks.get_mut(&cpu).unwrap();
        if let Some(object) = stack.pop() {
            return Some(object);
        }
        if machine.has_sheaves() {
            return self.next_sheaf(machine, cpu, node, seen, asked);
        }
        let batch = self.tunables.batch.max(1);
        let batch = if stack.touched { batch } else { batch.min(BATCH_IDLE) } as usize;
        if self.nodes[node].shared.is_empty() && !self.has_objects(node) {
            self.nodes[node].empty_touched = true;
            self.grow(machine, node, seen)?;
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
        self.fill(cpu, &mut refill)
    }

    /// The last object of some, of which the others go onto the stack.
    fn fill(&mut self, cpu: u32, objects: &mut Vec<u64>) -> Option<u64> {
        let object = objects.pop()?;
        let rest = self.stacks.get_mut(&cpu).unwrap().fill(std::mem::take(objects));
        rest.into_iter().for_each(|object| self.put(object));
        Some(object)
    }

    /// A full sheaf from the barn; else one of objects of the node, of a new slab there, of other nodes, of a new slab
    /// anywhere.
    fn next_sheaf(
        &mut self,
        machine: &Machine,
        cpu: u32,
        node: usize,
        seen: Option<u64>,
        asked: Asked,
    ) -> Option<u64> {
        if machine.has_barn(node) {
            let barn = &mut self.nodes[node].barn;
            barn.touched = true;
            if let Some(mut sheaf) = barn.sheaves.pop() {
                return self.fill(cpu, &mut sheaf);
            }
        }
        if machine.rules == SlabRules::Sheaves7_0Rc1 && !asked.blocks {
            return None;
        }
        let mut from = None;
        if machine.is_open(node) {
            let has_objects = self.has_objects(node);
            self.nodes[node].empty_touched |= !has_objects;
            if has_objects || self.grow(machine, node, seen).is_some() {
                from = Some(node);
            }
        }
        if asked.strict && from.is_none() {
            return None;
        }
        let others = || machine.fallback[node].iter().filter(|&&other| other != node);
        let from = from.or_else(|| others().find(|&&other| self.has_objects(other)).copied());
        let from = match from {
            Some(from) => from,
            None => self.grow_anywhere(machine, node, seen),
        };
        let sheaf = self.tunables.batch.max(1) as usize;
        let mut taken: Vec<u64> = std::iter::from_fn(|| self.take(from)).take(sheaf).collect();
        taken.reverse();
        self.fill(cpu, &mut taken)
    }

    /// An object of a node without the stacks, or, unless that is `asked` for alone, of one after it.
    pub fn alloc_node(
        &mut self,
        machine: &Machine,
        cpu: u32,
        node: usize,
        seen: Option<u64>,
        asked: Asked,
    ) -> Option<u64> {
        let is_open = asked.strict || !machine.is_private[node];
        let node = if is_open { node } else { machine.effective_of(node) };
        let here = machine.cpus[&cpu];
        let may_fit = !machine.has_sheaves() || machine.is_open(node);
        if may_fit && here.is_on && here.effective == node {
            let object = self.alloc(machine, cpu, seen, asked)?;
            if !machine.has_sheaves() || self.node_of(object) == node {
                return Some(object);
            }
            self.free(machine, cpu, object);
        }
        let object = self.alloc_on(machine, node, seen, asked)?;
        assert!(self.held.insert(object), "{object:#x} is held already");
        Some(object)
    }

    fn alloc_on(
        &mut self,
        machine: &Machine,
        node: usize,
        seen: Option<u64>,
        asked: Asked,
    ) -> Option<u64> {
        if !machine.has_sheaves() || machine.is_open(node) || asked.strict {
            if self.has_objects(node) {
                return self.take(node);
            }
            self.nodes[node].empty_touched = true;
            if self.grow(machine, node, seen).is_some() {
                return self.take(node);
            }
        }
        if asked.strict {
            return None;
        }
        let with_objects = machine.fallback[node].iter().find(|&&node| self.has_objects(node));
        let node = match with_objects {
            Some(&node) => node,
            None => self.grow_anywhere(machine, node, seen),
        };
        self.take(node)
    }

    fn grow_anywhere(&mut self, machine: &Machine, node: usize, seen: Option<u64>) -> usize {
        let block = seen.expect("some node has pages");
        let from = machine.node_of(block);
        assert!(machine.fallback[node].contains(&from), "a new slab of node {from}");
        self.nodes[node].colour = self.next_colour(node);
        self.add(from, block, self.last_colour(node));
        from
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

    /// A new slab of exactly this node. Whether a full one has pages left is what is seen.
    fn grow(&mut self, machine: &Machine, node: usize, seen: Option<u64>) -> Option<()> {
        self.nodes[node].colour = self.next_colour(node);
        if !machine.has_memory[node] {
            return None;
        }
        let is_new =
            |&block: &u64| !self.slabs.contains_key(&block) && machine.node_of(block) == node;
        match seen.filter(is_new) {
            Some(block) => self.add(node, block, self.last_colour(node)),
            None if machine.is_full[node] => return None,
            None => panic!("node {node} has room for a slab"),
        }
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
        let (here, home) = (machine.cpus[&cpu], self.node_of(object));
        match here.is_on {
            false => self.put(object),
            true if machine.keeps(here.effective, home) => {
                self.free_near(machine, cpu, here.effective, object);
            }
            true => self.free_far(here.effective, home, object),
        }
    }

    fn push(&mut self, cpu: u32, object: u64) -> bool {
        self.stacks.get_mut(&cpu).unwrap().push(object)
    }

    fn free_near(&mut self, machine: &Machine, cpu: u32, node: usize, object: u64) {
        if self.push(cpu, object) {
            return;
        }
        if machine.has_sheaves() {
            let sheaf = self.stacks.get_mut(&cpu).unwrap().take_main();
            let barn = &mut self.nodes[node].barn;
            let is_full = sheaf.len() == self.tunables.batch.max(1) as usize;
            if machine.has_barn(node) && barn.sheaves.len() < barn.limit && is_full {
                barn.sheaves.push(sheaf);
            } else {
                sheaf.into_iter().for_each(|object| self.put(object));
            }
            if !self.push(cpu, object) {
                self.put(object);
            }
            return;
        }
        let room = self.shared_room(node);
        let batch = self.tunables.batch.max(1) as usize;
        let most = if room > 0 { batch.min(room) } else { batch };
        let stack = self.stacks.get_mut(&cpu).unwrap();
        let oldest = stack.drain_oldest(most);
        if room > 0 {
            self.nodes[node].shared.extend(oldest);
        } else {
            oldest.into_iter().for_each(|object| self.put(object));
        }
        if !self.push(cpu, object) {
            self.put(object);
        }
    }

    fn shared_room(&self, node: usize) -> usize {
        self.nodes[node].shared_limit.saturating_sub(self.nodes[node].shared.len())
    }

    fn free_far(&mut self, here: usize, home: usize, object: u64) {
        let limit = self.nodes[here].alien_limit;
        if limit == 0 {
            return self.put(object);
        }
        let alien = &mut self.nodes[here].aliens[home];
        if alien.len() < limit {
            return alien.push(object);
        }
        let full = std::mem::replace(alien, vec![object]);
        self.bring_home(home, full);
    }

    fn bring_home(&mut self, home: usize, mut objects: Vec<u64>) {
        let room = self.shared_room(home);
        let rest = objects.split_off(objects.len().min(room));
        self.nodes[home].shared.extend(objects);
        rest.into_iter().for_each(|object| self.put(object));
    }

    /// Back into the slab.
    fn put(&mut self, object: u64) {
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
        if lists.free_objects > lists.free_limit {
            lists.free_objects -= objects;
            lists.slabs -= 1;
            self.slabs.remove(&at);
        } else {
            lists.empty.insert(0, at);
        }
    }

    /// All objects of a CPU's stack go back.
    pub fn flush(&mut self, cpu: u32) {
        let stack = self.stacks.get_mut(&cpu).unwrap();
        let objects = stack.drain_oldest(stack.len());
        objects.into_iter().for_each(|object| self.put(object));
    }

    pub fn flush_all(&mut self) {
        let cpus: Vec<u32> = self.stacks.keys().copied().collect();
        cpus.into_iter().for_each(|cpu| self.flush(cpu));
    }

    /// A round of reaping, at a time.
    pub fn reap(&mut self, machine: &Machine, cpu: u32, now: u64) {
        let Cpu { effective: node, reap_node, .. } = machine.cpus[&cpu];
        self.drain_alien(node, reap_node);
        self.reap_node(node, now);
        if machine.cpus_of(reap_node) == 0 {
            self.drain_aliens(reap_node);
            self.reap_node(reap_node, now);
        }
        let stack = self.stacks.get_mut(&cpu).unwrap();
        if !std::mem::take(&mut stack.touched) {
            let held = stack.len() as u32;
            let most = Tunables::reaped(stack.limit() as u32, held) as usize;
            let oldest = stack.drain_oldest(most);
            oldest.into_iter().for_each(|object| self.put(object));
        }
    }

    fn reap_node(&mut self, node: usize, now: u64) {
        let lists = &mut self.nodes[node];
        if now < lists.next_reap {
            return;
        }
        lists.next_reap = now + 4_000_000_000;
        let mut oldest = Vec::new();
        if !std::mem::take(&mut lists.shared_touched) {
            let held = lists.shared.len() as u32;
            let most = Tunables::reaped(lists.shared_limit as u32, held) as usize;
            oldest = lists.shared.drain(..most).collect();
        }
        if !std::mem::take(&mut lists.empty_touched) {
            let objects = self.geometry.objects;
            for _ in 0..lists.free_limit.div_ceil(5 * objects) {
                let Some(slab) = lists.empty.pop() else { break };
                lists.free_objects -= objects;
                lists.slabs -= 1;
                self.slabs.remove(&slab);
            }
        }
        oldest.into_iter().for_each(|object| self.put(object));
        let barn = &mut self.nodes[node].barn;
        if !std::mem::take(&mut barn.touched) {
            let held = barn.sheaves.len();
            let most = Tunables::reaped(barn.limit as u32, held as u32) as usize;
            let oldest: Vec<Vec<u64>> = barn.sheaves.drain(..most).collect();
            oldest.into_iter().flatten().for_each(|object| self.put(object));
        }
    }

    /// Everything goes back.
    pub fn shrink(&mut self) {
        self.flush_all();
        for node in 0..self.nodes.len() {
            self.drain_aliens(node);
            self.empty_barn(node);
        }
        (0..self.nodes.len()).for_each(|node| self.shrink_node(node));
    }

    fn empty_barn(&mut self, node: usize) {
        let sheaves = std::mem::take(&mut self.nodes[node].barn.sheaves);
        sheaves.into_iter().flatten().for_each(|object| self.put(object));
    }

    /// A node that no CPU looks to keeps nothing ready; neither does a barn that is none any more.
    pub fn leave_nodes(&mut self, machine: &Machine) {
        let without_barn = |&node: &usize| !machine.has_barn(node);
        (0..self.nodes.len()).filter(without_barn).for_each(|node| self.empty_barn(node));
        for node in (0..self.nodes.len()).filter(|&node| machine.cpus_of(node) == 0) {
            self.drain_aliens(node);
            self.shrink_node(node);
        }
    }

    fn drain_aliens(&mut self, node: usize) {
        (0..self.nodes.len()).for_each(|home| self.drain_alien(node, home));
    }

    fn drain_alien(&mut self, node: usize, home: usize) {
        let alien = std::mem::take(&mut self.nodes[node].aliens[home]);
        self.bring_home(home, alien);
    }

    /// Batches from the top.
    fn empty_shared(&mut self, node: usize) {
        while let shared @ 1.. = self.nodes[node].shared.len() {
            let batch = self.nodes[node].shared.split_off(shared.saturating_sub(BATCH_MAX));
            batch.into_iter().for_each(|object| self.put(object));
        }
    }

    fn shrink_node(&mut self, node: usize) {
        self.empty_shared(node);
        self.empty_barn(node);
        for slab in std::mem::take(&mut self.nodes[node].empty) {
            self.nodes[node].free_objects -= self.geometry.objects;
            self.nodes[node].slabs -= 1;
            self.slabs.remove(&slab);
        }
    }
}
