//! The user who called `sudo`, or what does the same.

use nearpage_machine::Owner;
use nix::unistd::{Uid, User};

/// The user who called `sudo`, `pkexec` or `doas`, if this process is root by it. `su` does not tell who called it.
pub(super) fn caller() -> Option<Owner> {
    let text = |name| std::env::var(name).ok();
    let number = |name| text(name)?.parse::<u32>().ok();
    let entry = |found: nix::Result<Option<User>>| found.ok().flatten();
    let of_sudo = || Some(Owner { uid: number("SUDO_UID")?, gid: number("SUDO_GID")? });
    let of_pkexec = || entry(User::from_uid(Uid::from_raw(number("PKEXEC_UID")?))).map(owner);
    let of_doas = || entry(User::from_name(&text("DOAS_USER")?)).map(owner);
    if !Uid::effective().is_root() {
        return None;
    }
    let is_other = |owner: &Owner| owner.uid != 0;
    let callers: [&dyn Fn() -> Option<Owner>; 3] = [&of_sudo, &of_pkexec, &of_doas];
    callers.into_iter().find_map(|of| of().filter(is_other))
}

fn owner(user: User) -> Owner {
    Owner { uid: user.uid.as_raw(), gid: user.gid.as_raw() }
}
