//! The user that the recorded command runs as: who called `sudo`, or who `--user` names; else the user of this process.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nearpage_machine::shown;
use nix::unistd::{Gid, Uid, User, getgrouplist, setgid, setgroups, setuid};

use crate::sudo;

/// Names of root's that its environment has under `sudo`, `pkexec` and `doas`.
const OF_SUDO: [&str; 8] = [
    "DOAS_USER",
    "MAIL",
    "PKEXEC_UID",
    "SUDO_COMMAND",
    "SUDO_GID",
    "SUDO_HOME",
    "SUDO_UID",
    "SUDO_USER",
];

/// What a command of a user that root names is told of root's environment, beside `LC_*`.
const KEPT: [&str; 6] = ["COLORTERM", "LANG", "LANGUAGE", "PATH", "TERM", "TZ"];

/// The user that a command runs as.
#[derive(Debug)]
pub(super) struct CommandUser {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    pub name: String,
    home: PathBuf,
    shell: PathBuf,
    /// Whether it is who called `sudo`: the environment that `sudo` passed on is that user's.
    pub is_caller: bool,
}

/// There is no such user.
#[derive(Debug, thiserror::Error)]
#[error("--user {asked}: {why}; expected the name or the number of a user, such as root or 1000")]
pub struct NoUser {
    asked: String,
    why: String,
}

impl CommandUser {
    /// The user of `--user`, or who called `sudo`; `None` if the command runs as this process does.
    ///
    /// # Errors
    ///
    /// There is no such user, or nobody can tell.
    pub(super) fn of(asked: Option<&str>) -> Result<Option<CommandUser>, NoUser> {
        let no_user =
            |why: String| NoUser { asked: shown(asked.unwrap_or("of SUDO_UID")).to_string(), why };
        let user = match (asked, sudo::caller()) {
            (Some(asked), _) => {
                let found = match asked.parse() {
                    Ok(number) => User::from_uid(Uid::from_raw(number)),
                    Err(_) => User::from_name(asked),
                };
                let found = found.map_err(|error| no_user(error.to_string()))?;
                found.ok_or_else(|| no_user("there is no such user".into()))?
            }
            (None, Some(caller)) => {
                let uid = Uid::from_raw(caller.uid);
                let found = User::from_uid(uid).map_err(|error| no_user(error.to_string()))?;
                // Containers have users without an entry.
                found.unwrap_or_else(|| User {
                    name: caller.uid.to_string(),
                    passwd: CString::default(),
                    uid,
                    gid: Gid::from_raw(caller.gid),
                    gecos: CString::default(),
                    dir: "/".into(),
                    shell: "/bin/sh".into(),
                })
            }
            (None, None) => return Ok(None),
        };
        if user.uid == Uid::effective() {
            return Ok(None);
        }
        let groups = CString::new(user.name.as_bytes())
            .map_err(io::Error::from)
            .and_then(|name| Ok(getgrouplist(&name, user.gid)?))
            .map_err(|error| no_user(error.to_string()))?;
        Ok(Some(CommandUser {
            uid: user.uid,
            gid: user.gid,
            groups,
            name: user.name,
            home: user.dir,
            shell: user.shell,
            is_caller: asked.is_none(),
        }))
    }

    /// Lets a command run as this user, with this user's environment and without the terminal, into whose input it could
    /// type for root.
    pub(super) fn take(&self, command: &mut Command) {
        match self.is_caller {
            true => OF_SUDO.iter().for_each(|name| _ = command.env_remove(name)),
            false => {
                command.env_clear();
                let is_kept = |name: &std::ffi::OsStr| {
                    name.as_bytes().starts_with(b"LC_") || KEPT.iter().any(|kept| name == *kept)
                };
                command.envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
            }
        }
        command.env("HOME", &self.home).env("SHELL", &self.shell);
        command.env("USER", &self.name).env("LOGNAME", &self.name);
        let (uid, gid, groups) = (self.uid, self.gid, self.groups.clone());
        let become_user = move || {
            leave_terminal();
            close_on_exec();
            setgroups(&groups)?;
            setgid(gid)?;
            setuid(uid)?;
            Ok(())
        };
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(become_user) };
    }
}

/// The name of a user, or the number where there is none.
pub(super) fn name_of(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| format!("user {uid}"), |user| user.name)
}

/// The program gets the first three descriptors: the others are root's.
fn close_on_exec() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: marks descriptors of this process, and closes none.
    let marked = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    if marked == 0 {
        return;
    }
    // Kernels to 5.10.
    for descriptor in FIRST as i32..1 << 16 {
        // SAFETY: as above; a number that is no descriptor's is refused.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// A process that has no terminal has nothing to leave.
fn leave_terminal() {
    // SAFETY: opens a file by a name that ends.
    let terminal = unsafe { libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if terminal >= 0 {
        // SAFETY: the descriptor is open, and the request has no argument.
        unsafe { libc::ioctl(terminal, libc::TIOCNOTTY) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        for asked in ["root", "0", "nobody", "65534"] {
            // Nothing changes for who runs this.
            let Some(user) = CommandUser::of(Some(asked)).unwrap() else { continue };
            let number = if user.name == "root" { 0 } else { 65_534 };
            assert_eq!((user.uid.as_raw(), user.is_caller), (number, false), "{asked}");
        }
        for wrong in ["no-such-user", "4294967294", "", "-1"] {
            let error = CommandUser::of(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains("there is no such user; expected the name"), "{error}");
        }
    }
}
