//! `peers malloc`: nearpage's malloc beside others, each called through its shared library, by the benchmarks of objects.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::objects::peers::{Build, Entry};
use crate::objects::source::ObjectSource;
use crate::objects::work::enlist;

/// The library of nearpage's malloc.
const NEARPAGE: &str = "libnearpage_preload.so";
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Starts this program again with room for the thread-local variables of libraries that are opened later: jemalloc's and
/// tcmalloc's do not fit into what the C library reserves.
///
/// # Errors
///
/// The program could not be started again.
pub fn with_room() -> io::Result<()> {
    if std::env::var_os(TUNABLES).is_some() {
        return Ok(());
    }
    let error = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(TUNABLES, "glibc.rtld.optional_static_tls=65536")
        .exec();
    Err(error)
}

/// All mallocs.
pub fn all() -> Vec<Entry> {
    let entry = |name, build| Entry { name, build };
    vec![
        entry("nearpage", (|| nearpage("")) as Build),
        entry("nearpage-hardened", || nearpage("hardened=1")),
        entry("mimalloc", || library("libmimalloc.so.2", "libmimalloc2.0")),
        entry("jemalloc", || library("libjemalloc.so.2", "libjemalloc2")),
        entry("tcmalloc", || library("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")),
        entry("snmalloc", || Ok(enlist(Snmalloc::new()))),
        entry("glibc", || Ok(enlist(Loaded { malloc: libc::malloc, free: libc::free }))),
    ]
}

type Contestant = Box<dyn crate::objects::work::Contestant>;

/// The malloc of a library, by its symbols.
struct Loaded {
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

fn library(name: &str, package: &str) -> Result<Contestant, String> {
    let name = CString::new(name).map_err(|error| error.to_string())?;
    open(&name).map_err(|error| format!("{error} (apt install {package})"))
}

/// nearpage's malloc with options. Each comes from a copy of the library, which then has variables of its own.
fn nearpage(options: &str) -> Result<Contestant, String> {
    let found = beside().ok_or_else(|| {
        format!("{NEARPAGE} is not beside this program: cargo build --release -p nearpage-preload")
    })?;
    let copy = std::env::temp_dir().join(format!("{}-{options}-{NEARPAGE}", std::process::id()));
    std::fs::copy(&found, &copy).map_err(|error| format!("{}: {error}", found.display()))?;
    // SAFETY: the contestants are made before threads work, and the library reads it at its first call, below.
    unsafe { std::env::set_var("NEARPAGE_MALLOC", OsStr::new(options)) };
    let name = CString::new(copy.as_os_str().as_bytes()).map_err(|error| error.to_string());
    let opened = name.and_then(|name| open(&name));
    let _ = std::fs::remove_file(&copy);
    opened
}

fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folders = own.ancestors().skip(1).take(2);
    folders.map(|folder: &Path| folder.join(NEARPAGE)).find(|file| file.is_file())
}

fn open(name: &CStr) -> Result<Contestant, String> {
    // SAFETY: the libraries' constructors may run at any time; the names are those of functions with these types. A library
    // that is deeply bound calls its own functions, not the C library's of the same names.
    unsafe {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        let library = libc::dlopen(name.as_ptr(), flags);
        if library.is_null() {
            return Err(CStr::from_ptr(libc::dlerror()).to_string_lossy().into_owned());
        }
        let (malloc, free) =
            (libc::dlsym(library, c"malloc".as_ptr()), libc::dlsym(library, c"free".as_ptr()));
        if malloc.is_null() || free.is_null() {
            return Err(format!("{name:?} has no malloc"));
        }
        let loaded = Loaded {
            malloc: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *mut c_void>(
                malloc,
            ),
            free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(free),
        };
        // Starts it, before threads work.
        (loaded.free)((loaded.malloc)(64));
        Ok(enlist(loaded))
    }
}

impl ObjectSource for Loaded {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        // SAFETY: any size may be asked for.
        unsafe { (self.malloc)(SIZE).cast() }
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: passed on from the caller.
        unsafe { (self.free)(object.cast()) };
    }
}

/// snmalloc has no package: its functions come with this program, and are called through pointers as those of libraries are.
/// It is told the size at a free, which the others are not.
struct Snmalloc {
    alloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, usize, usize) -> c_void,
}

impl Snmalloc {
    fn new() -> Self {
        let (alloc, free) = (snmalloc_sys::sn_rust_alloc, snmalloc_sys::sn_rust_dealloc);
        std::hint::black_box(Self { alloc, free })
    }
}

impl ObjectSource for Snmalloc {
    #[inline(always)]
    fn alloc<const SIZE: usize>(&self) -> *mut u8 {
        // SAFETY: 16 is a power of two.
        unsafe { (self.alloc)(16, SIZE).cast() }
    }

    #[inline(always)]
    unsafe fn free<const SIZE: usize>(&self, object: *mut u8) {
        // SAFETY: passed on from the caller; alignment and size are those of the allocation.
        unsafe { (self.free)(object.cast(), 16, SIZE) };
    }
}
