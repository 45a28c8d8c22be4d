//! What objects need from their host, beside what pages need.

use nearpage::Address;
use nearpage::platform::{Platform, SingleThreaded};

use crate::error::ObjectError;
use crate::storage::ObjectStorage;

/// A host of pages and objects.
pub trait SlabPlatform: Platform<Storage: ObjectStorage> {
    /// A free of an object was refused. The object stays where it is; the host may report or abort.
    fn misuse_of_object(&self, _error: &ObjectError) {}

    /// An object came onto the stack of this CPU, whose threads will soon write to it: a host may have its line
    /// brought near. What is at the address may not be there; nothing is asked of it.
    #[inline(always)]
    fn prefetch(&self, _object: Address) {}
}

impl SlabPlatform for SingleThreaded {
    fn misuse_of_object(&self, _error: &ObjectError) {
        self.count_misuse();
    }
}
