//! Bytes of code.

use super::KernelError;

/// Tells them.
///
/// # Errors
///
/// [`KernelError`].
pub fn run() -> Result<(), KernelError> {
    Err(KernelError::Failed("--sizes".into()))
}
