//! The user who called `sudo`.

use nearpage_machine::Owner;

/// The user who called `sudo`, if this process is root by it.
pub(super) fn caller() -> Option<Owner> {
    // SAFETY: asks only.
    let is_root = unsafe { libc::geteuid() } == 0;
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
    (is_root && uid != 0).then_some(Owner { uid, gid })
}
