//! Objects smaller than a page, of `nearpage.Memory`: caches of one size, and memory of any size. numpy can wrap each.
//!
//! An object holds its cache, a cache holds the heap, and the heap holds the memory. So nothing is freed before its users are gone.

use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nearpage_slab::{CacheOptions, SizeError, SlabConfig};
use nearpage::{AllocError, Gfp, NodeId};
use nearpage_linux::{KmemCache, Memory as Host, SizeClasses, SlabAllocator};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::Class;
use crate::guard::short;
use crate::memory::{array_interface, known};
use crate::named;

/// Caches that a memory has room for; 13 of them are for memory of any size.
const CACHES_MAX: usize = 256;
/// Objects of one call of `alloc_many`.
const MANY_MAX: usize = 1 << 20;

/// A memory, and its allocator of objects once somebody asked for one.
pub(crate) struct Heap {
    // Dropped in this order: size classes borrow the allocator, which borrows the memory.
    classes: OnceLock<SizeClasses<'static>>,
    slab: OnceLock<Box<SlabAllocator<'static>>>,
    pub(crate) host: Host,
    /// One thread makes the allocator or the size classes.
    making: Mutex<()>,
}

impl Heap {
    pub(crate) fn new(host: Host) -> Arc<Heap> {
        let (classes, slab) = (OnceLock::new(), OnceLock::new());
        Arc::new(Heap { classes, slab, host, making: Mutex::new(()) })
    }

    /// The allocator of objects, which its first use makes. Who keeps a borrow of it keeps the heap.
    fn slab(self: &Arc<Heap>) -> Result<&'static SlabAllocator<'static>, String> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.slab.get().is_none() {
            // SAFETY: the heap lies behind an `Arc`, does not move, and drops the memory after the allocator.
            let host: &'static Host = unsafe { &*std::ptr::from_ref(&self.host) };
            let config = SlabConfig::default().with_caches_max(CACHES_MAX);
            let slab = Box::new(host.slab(config).map_err(|error| error.to_string())?);
            let _ = self.slab.set(slab);
        }
        let slab: &SlabAllocator<'static> = self.slab.get().expect("it was just made");
        // SAFETY: it lies in a box of the heap, and who borrows it is dropped before the heap: see `Cached` and `Heap`.
        Ok(unsafe { &*std::ptr::from_ref(slab) })
    }

    /// The caches for all sizes, which their first use makes.
    fn classes(self: &Arc<Heap>) -> Result<&SizeClasses<'static>, String> {
        let slab = self.slab()?;
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.classes.get().is_none() {
            let _ = self.classes.set(slab.size_classes().map_err(|error| error.to_string())?);
        }
        Ok(self.classes.get().expect("it was just made"))
    }

    /// The text of `/proc/slabinfo`.
    pub(crate) fn slabinfo(self: &Arc<Heap>) -> Result<String, String> {
        Ok(self.slab()?.slabinfo())
    }

    /// Gives free slabs back, then the pages that CPUs keep. Returns pages of slabs.
    pub(crate) fn shrink(&self) -> u64 {
        let pages = self.slab.get().map_or(0, |slab| slab.shrink_all().0);
        // A CPU that is busy keeps its pages until it is asked again.
        let _ = self.host.drain_all();
        pages
    }
}

/// A cache with the heap that it borrows from.
struct Cached {
    /// Taken by `drop`, before the heap goes.
    cache: Option<KmemCache<'static>>,
    heap: Arc<Heap>,
    bytes: u64,
}

impl Cached {
    fn cache(&self) -> &KmemCache<'static> {
        self.cache.as_ref().expect("only `drop` takes it")
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.take() {
            // No object is left: each holds this. Should it fail all the same, the memory keeps the cache until it goes itself.
            let _ = cache.destroy();
        }
    }
}

/// A cache of objects of one size.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Cache {
    name: &'static str,
    cached: Arc<Cached>,
}

/// Whose an object is.
enum Owner {
    Cache(Arc<Cached>),
    Sizes(Arc<Heap>),
}

/// Where an object lies.
#[derive(Clone, Copy)]
struct At(NonNull<u8>);

// SAFETY: an object's memory belongs to no thread. It is freed from any, once, and Python decides who writes to it.
unsafe impl Send for At {}
// SAFETY: as above; a shared reference reads the address only.
unsafe impl Sync for At {}

/// An object, or memory of any size.
#[pyclass(frozen, module = "nearpage")]
pub(crate) struct Object {
    owner: Owner,
    at: At,
    nbytes: u64,
}

impl Drop for Object {
    fn drop(&mut self) {
        let at = self.at.0;
        let freed = match &self.owner {
            Owner::Cache(cached) => {
                let cache = cached.cache();
                // SAFETY: the cache made this object, this frees it, once, and a view of its memory holds it: nobody uses it any more.
                unsafe { cache.free(at) }.is_ok()
            }
            Owner::Sizes(heap) => heap.classes.get().is_some_and(|classes| {
                // SAFETY: as above, of the size classes.
                unsafe { classes.free(at) }.is_ok()
            }),
        };
        debug_assert!(freed);
    }
}

#[pymethods]
impl Object {
    #[getter]
    fn node(&self) -> Option<u32> {
        let host = match &self.owner {
            Owner::Cache(cached) => &cached.heap.host,
            Owner::Sizes(heap) => &heap.host,
        };
        host.node_of(host.frame_of(self.at.0)).map(|node| node.0)
    }

    #[getter]
    fn address(&self) -> usize {
        self.at.0.as_ptr() as usize
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, self.address(), self.nbytes)
    }

    fn __len__(&self) -> usize {
        self.nbytes as usize
    }

    fn __repr__(&self) -> String {
        let node = self.node().map_or("unknown".into(), |node| node.to_string());
        format!("Object({} bytes, node {node})", self.nbytes)
    }
}

fn gfp(zeroed: bool) -> Gfp {
    if zeroed { Gfp::KERNEL.union(Gfp::ZERO) } else { Gfp::KERNEL }
}

/// The name of a cache lives as long as the process. One name costs once, however often a cache has it.
fn forever(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name = String::leak(name.to_owned());
    names.insert(name);
    name
}

/// Makes a cache.
pub(crate) fn cache(
    py: Python<'_>,
    heap: &Arc<Heap>,
    name: &str,
    object_bytes: u64,
    align: u64,
) -> PyResult<Cache> {
    let heap = heap.clone();
    let name = forever(name);
    let made = short(py, || {
        let options = CacheOptions::new(name, object_bytes).align(align);
        let slab = heap.slab().map_err(|error| (Class::Memory, error))?;
        let cache = slab.create(options).map_err(|error| (Class::Argument, error.to_string()))?;
        Ok(Arc::new(Cached { cache: Some(cache), heap, bytes: object_bytes }))
    })?;
    let cached = made.map_err(|(class, error): (Class, String)| {
        let accepted = "expected a word that no other cache has, 1 byte or more, and an alignment that is a power of two";
        match class {
            Class::Argument => class.error(Some("cache".into()), format!("{error}, {accepted}")),
            class => class.error(None, error),
        }
    })?;
    Ok(Cache { name, cached })
}

/// Allocates memory of any size.
pub(crate) fn bytes(
    py: Python<'_>,
    heap: &Arc<Heap>,
    nbytes: u64,
    node: Option<u32>,
    align: u64,
    zeroed: bool,
) -> PyResult<Object> {
    known(&heap.host, node)?;
    let got = short(py, || {
        let classes = heap.classes().map_err(|error| (Class::Memory, None, error))?;
        let (size, align) = (nbytes as usize, align as usize);
        let got = classes.alloc_aligned(size, align, gfp(zeroed), node.map(NodeId)).map(At);
        got.map_err(|error| match error {
            SizeError::ZeroSize => {
                (Class::Argument, Some("nbytes"), "nbytes=0, expected 1 or more".into())
            }
            SizeError::Alignment { .. } => {
                (Class::Argument, Some("align"), format!("{error}, expected a power of two"))
            }
            error => (Class::Memory, None, format!("{nbytes} bytes: {error}")),
        })
    })?;
    let at = got.map_err(|(class, place, message): (Class, Option<&str>, String)| {
        class.error(place.map(str::to_owned), message)
    })?;
    Ok(Object { owner: Owner::Sizes(heap.clone()), at, nbytes })
}

#[pymethods]
impl Cache {
    #[getter]
    fn name(&self) -> &'static str {
        self.name
    }

    #[getter]
    fn object_bytes(&self) -> u64 {
        self.cached.bytes
    }

    #[pyo3(signature = (*, node = None, zeroed = true))]
    fn alloc(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::node)] node: Option<u32>,
        zeroed: bool,
    ) -> PyResult<Object> {
        known(&self.cached.heap.host, node)?;
        let got = short(py, || {
            let cache = self.cached.cache();
            let got = match node {
                None => cache.alloc(gfp(zeroed)),
                Some(node) => cache.alloc_node(gfp(zeroed), NodeId(node)),
            };
            got.map(At)
        })?;
        got.map(|at| self.object(at)).map_err(|error| self.refused(&error))
    }

    #[pyo3(signature = (count, *, zeroed = true))]
    fn alloc_many(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = named::count)] count: usize,
        zeroed: bool,
    ) -> PyResult<Vec<Object>> {
        if count > MANY_MAX {
            let message = format!("count={count}, expected 0 to {MANY_MAX}");
            return Err(Class::Argument.error(Some("count".into()), message));
        }
        let got = short(py, || {
            let mut objects = vec![std::ptr::null_mut(); count];
            let got = self.cached.cache().alloc_bulk(gfp(zeroed), &mut objects)?;
            objects.truncate(got);
            Ok(objects.into_iter().filter_map(NonNull::new).map(At).collect::<Vec<At>>())
        })?;
        let objects = got.map_err(|error: AllocError| self.refused(&error))?;
        Ok(objects.into_iter().map(|at| self.object(at)).collect())
    }

    fn shrink(&self, py: Python<'_>) -> PyResult<u64> {
        // A CPU whose stack is in use keeps what it has until it is asked again.
        short(py, || self.cached.cache().shrink().map_or(0, |pages| pages.0))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (of, layout) = (self.cached.cache().stats(), self.cached.cache().geometry());
        let stats = PyDict::new(py);
        for (name, count) in [
            ("alloc_hits", of.alloc_hits),
            ("alloc_misses", of.alloc_misses),
            ("free_hits", of.free_hits),
            ("free_misses", of.free_misses),
            ("refills", of.refills),
            ("flushes", of.flushes),
            ("objects_per_slab", layout.objects.into()),
            ("pages_per_slab", 1 << layout.order.0),
            ("stride_bytes", layout.size.into()),
        ] {
            stats.set_item(name, count)?;
        }
        Ok(stats)
    }

    fn __repr__(&self) -> String {
        format!("Cache({:?}, {} bytes an object)", self.name, self.cached.bytes)
    }
}

impl Cache {
    fn object(&self, at: At) -> Object {
        Object { owner: Owner::Cache(self.cached.clone()), at, nbytes: self.cached.bytes }
    }

    fn refused(&self, error: &AllocError) -> PyErr {
        Class::Memory.error(None, format!("an object of {:?}: {error}", self.name))
    }
}
