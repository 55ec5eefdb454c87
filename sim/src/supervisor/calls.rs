//! The system calls that name files by paths, and where their arguments have those.
//!
//! Each of them stops, so that none can reach the real machine's file in the place of a simulated one.

use crate::Errno;

/// Calls that would reach files of the real machine past all paths: by handles, and by lists of calls that nothing
/// stops. Who is not root may be refused them.
pub(super) const REFUSED: [i64; 2] = [libc::SYS_open_by_handle_at, libc::SYS_io_uring_setup];

/// Calls by paths that may wait for another process, as for who opens the other end of a pipe.
pub(super) const WAITS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_connect,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
];

/// Calls that name files by paths: each number once.
pub(super) const PATH_CALLS: &[PathCall] = &[
    call(libc::SYS_openat, Action::Open(OpenFlags::Argument(2)), &[at(0, 1)]),
    call(libc::SYS_openat2, Action::Open(OpenFlags::How { address: 2, size: 3 }), &[at(0, 1)]),
    call(libc::SYS_newfstatat, Action::Stat { address: 2 }, &[at(0, 1).with_flags(3)]),
    call(libc::SYS_statx, Action::ExtendedStat { address: 4 }, &[at(0, 1).with_flags(2)]),
    call(libc::SYS_faccessat, Action::Access { mode: 2 }, &[at(0, 1)]),
    call(libc::SYS_faccessat2, Action::Access { mode: 2 }, &[at(0, 1).with_flags(3)]),
    call(libc::SYS_readlinkat, Action::ReadLink { address: 2, room: 3 }, &[at(0, 1).of_link()]),
    call(libc::SYS_chdir, Action::ChangeFolder, &[here(0)]),
    call(libc::SYS_getxattr, Action::ExtendedAttribute, &[here(0)]),
    call(libc::SYS_lgetxattr, Action::ExtendedAttribute, &[here(0).of_link()]),
    call(libc::SYS_listxattr, Action::ExtendedAttribute, &[here(0)]),
    call(libc::SYS_llistxattr, Action::ExtendedAttribute, &[here(0).of_link()]),
    call(libc::SYS_setxattr, Action::ExtendedAttribute, &[here(0)]),
    call(libc::SYS_lsetxattr, Action::ExtendedAttribute, &[here(0).of_link()]),
    call(libc::SYS_removexattr, Action::ExtendedAttribute, &[here(0)]),
    call(libc::SYS_lremovexattr, Action::ExtendedAttribute, &[here(0).of_link()]),
    call(SYS_SETXATTRAT, Action::ExtendedAttribute, &[at(0, 1).with_flags(2)]),
    call(SYS_GETXATTRAT, Action::ExtendedAttribute, &[at(0, 1).with_flags(2)]),
    call(SYS_LISTXATTRAT, Action::ExtendedAttribute, &[at(0, 1).with_flags(2)]),
    call(SYS_REMOVEXATTRAT, Action::ExtendedAttribute, &[at(0, 1).with_flags(2)]),
    call(libc::SYS_fchmodat, Action::SetMode, &[at(0, 1)]),
    call(SYS_FCHMODAT2, Action::SetMode, &[at(0, 1).with_flags(3)]),
    call(libc::SYS_fchownat, Action::SetOwner, &[at(0, 1).with_flags(4)]),
    call(libc::SYS_utimensat, Action::SetTimes, &[at(0, 1).with_flags(3)]),
    call(libc::SYS_truncate, Action::Truncate, &[here(0)]),
    call(libc::SYS_mkdirat, Action::Make, &[at(0, 1).of_new_name()]),
    call(libc::SYS_mknodat, Action::Make, &[at(0, 1).of_new_name()]),
    call(libc::SYS_symlinkat, Action::Make, &[at(1, 2).of_new_name()]),
    call(libc::SYS_unlinkat, Action::Remove(Removed::ByFlags(2)), &[at(0, 1).of_name()]),
    call(
        libc::SYS_linkat,
        Action::Link,
        &[at(0, 1).of_link().with_flags(4), at(2, 3).of_new_name()],
    ),
    call(SYS_RENAMEAT, Action::Rename { flags: None }, &[at(0, 1).of_name(), at(2, 3).of_name()]),
    call(
        libc::SYS_renameat2,
        Action::Rename { flags: Some(4) },
        &[at(0, 1).of_name(), at(2, 3).of_name()],
    ),
    call(libc::SYS_bind, Action::Bind, &[socket(1, 2).of_new_name()]),
    call(libc::SYS_connect, Action::Connect, &[socket(1, 2)]),
    call(
        libc::SYS_name_to_handle_at,
        Action::Refuse(Errno::EOPNOTSUPP),
        &[at(0, 1).of_link().with_flags(4)],
    ),
    call(SYS_FILE_GETATTR, Action::Refuse(Errno::EOPNOTSUPP), &[at(0, 1).with_flags(4)]),
    call(SYS_FILE_SETATTR, Action::Refuse(Errno::EOPNOTSUPP), &[at(0, 1).with_flags(4)]),
    call(libc::SYS_open_tree, Action::Open(OpenFlags::Tree(2)), &[at(0, 1).with_flags(2)]),
    call(SYS_OPEN_TREE_ATTR, Action::Open(OpenFlags::Tree(2)), &[at(0, 1).with_flags(2)]),
    call(
        libc::SYS_mount,
        Action::Refuse(Errno::EPERM),
        &[here(0).when(3, libc::MS_BIND | libc::MS_MOVE), here(1)],
    ),
    call(libc::SYS_move_mount, Action::Refuse(Errno::EPERM), &[at(0, 1), at(2, 3)]),
    call(libc::SYS_umount2, Action::Refuse(Errno::EPERM), &[here(0)]),
    call(libc::SYS_mount_setattr, Action::Refuse(Errno::EPERM), &[at(0, 1).with_flags(2)]),
    call(libc::SYS_fspick, Action::Refuse(Errno::EPERM), &[at(0, 1)]),
    call(libc::SYS_chroot, Action::Refuse(Errno::EPERM), &[here(0)]),
    call(libc::SYS_pivot_root, Action::Refuse(Errno::EPERM), &[here(0), here(1)]),
    call(libc::SYS_acct, Action::Refuse(Errno::EPERM), &[here(0)]),
    call(libc::SYS_swapon, Action::Refuse(Errno::EPERM), &[here(0)]),
    call(libc::SYS_swapoff, Action::Refuse(Errno::EPERM), &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_open, Action::Open(OpenFlags::Argument(1)), &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_creat, Action::Open(OpenFlags::Creat), &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_stat, Action::Stat { address: 1 }, &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_lstat, Action::Stat { address: 1 }, &[here(0).of_link()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_access, Action::Access { mode: 1 }, &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_readlink, Action::ReadLink { address: 1, room: 2 }, &[here(0).of_link()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_chmod, Action::SetMode, &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_chown, Action::SetOwner, &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_lchown, Action::SetOwner, &[here(0).of_link()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_utime, Action::SetTimes, &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_utimes, Action::SetTimes, &[here(0)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_futimesat, Action::SetTimes, &[at(0, 1)]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_mkdir, Action::Make, &[here(0).of_new_name()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_mknod, Action::Make, &[here(0).of_new_name()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_symlink, Action::Make, &[here(1).of_new_name()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_unlink, Action::Remove(Removed::File), &[here(0).of_name()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_rmdir, Action::Remove(Removed::Folder), &[here(0).of_name()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_link, Action::Link, &[here(0).of_link(), here(1).of_new_name()]),
    #[cfg(target_arch = "x86_64")]
    call(libc::SYS_rename, Action::Rename { flags: None }, &[here(0).of_name(), here(1).of_name()]),
];

/// Numbers that are newer than libc's, the same on every machine.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_GETATTR: i64 = 468;
const SYS_FILE_SETATTR: i64 = 469;
#[cfg(target_arch = "x86_64")]
const SYS_RENAMEAT: i64 = libc::SYS_renameat;
#[cfg(target_arch = "aarch64")]
const SYS_RENAMEAT: i64 = 38;

/// A call that names files by paths.
#[derive(Debug)]
pub(super) struct PathCall {
    pub(super) number: i64,
    pub(super) action: Action,
    pub(super) paths: &'static [PathArgument],
}

impl PathCall {
    pub(super) fn of(number: i64) -> Option<&'static Self> {
        PATH_CALLS.iter().find(|call| call.number == number)
    }
}

/// What a call does with what its paths name. Numbers are those of its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Open(OpenFlags),
    Stat {
        address: usize,
    },
    /// `statx`.
    ExtendedStat {
        address: usize,
    },
    Access {
        mode: usize,
    },
    ReadLink {
        address: usize,
        room: usize,
    },
    ChangeFolder,
    /// Reads, sets or removes one, or lists all.
    ExtendedAttribute,
    SetMode,
    SetOwner,
    SetTimes,
    Truncate,
    /// A folder, a device or a link.
    Make,
    Remove(Removed),
    /// A second name; the first path is the old one.
    Link,
    /// The first path is the old one.
    Rename {
        flags: Option<usize>,
    },
    /// Gives a socket a name.
    Bind,
    /// Connects a socket to one with a name.
    Connect,
    /// What none of its files takes part in: what the kernel says to who may not, or of a file system that cannot.
    Refuse(Errno),
}

/// Where a call that opens a file has its flags.
#[derive(Debug, Clone, Copy)]
pub(super) enum OpenFlags {
    Argument(usize),
    /// A `struct open_how`.
    How {
        address: usize,
        size: usize,
    },
    /// Those of `creat`.
    Creat,
    /// Those of `open_tree`, which opens a place.
    Tree(usize),
}

/// What a call removes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Removed {
    File,
    Folder,
    ByFlags(usize),
}

/// A path among the arguments of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathArgument {
    /// The descriptor of the folder that it starts in; none: the current folder.
    pub(super) folder: Option<usize>,
    pub(super) path: usize,
    /// What a link at its end is, where no flags say otherwise.
    pub(super) last: LastLink,
    /// `AT_SYMLINK_NOFOLLOW`, `AT_SYMLINK_FOLLOW` and `AT_EMPTY_PATH`.
    pub(super) flags: Option<usize>,
    /// It is in a socket's address, which has this length.
    pub(super) length: Option<usize>,
    /// It is one only where an argument has one of these bits.
    pub(super) only_with: Option<(usize, u64)>,
}

/// What a link is that a path ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    /// The way to what is meant.
    Followed,
    /// What is meant, unless a separator is behind it.
    Kept,
    /// A name that is to go.
    Name,
    /// A name that is there, where a new one is wanted.
    NewName,
}

impl PathArgument {
    const fn of_link(self) -> Self {
        Self { last: LastLink::Kept, ..self }
    }

    const fn of_name(self) -> Self {
        Self { last: LastLink::Name, ..self }
    }

    const fn of_new_name(self) -> Self {
        Self { last: LastLink::NewName, ..self }
    }

    const fn with_flags(self, flags: usize) -> Self {
        Self { flags: Some(flags), ..self }
    }

    const fn when(self, argument: usize, bits: u64) -> Self {
        Self { only_with: Some((argument, bits)), ..self }
    }
}

const fn at(folder: usize, path: usize) -> PathArgument {
    PathArgument { folder: Some(folder), ..here(path) }
}

const fn socket(address: usize, length: usize) -> PathArgument {
    PathArgument { length: Some(length), ..here(address) }
}

const fn here(path: usize) -> PathArgument {
    let last = LastLink::Followed;
    PathArgument { folder: None, path, last, flags: None, length: None, only_with: None }
}

const fn call(number: i64, action: Action, paths: &'static [PathArgument]) -> PathCall {
    PathCall { number, action, paths }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_there_once_and_names_its_arguments() {
        let mut numbers: Vec<i64> = PATH_CALLS.iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), PATH_CALLS.len());
        for PathCall { number, action, paths } in PATH_CALLS {
            let has_two = matches!(action, Action::Link | Action::Rename { .. });
            let may_have_two = matches!(action, Action::Refuse(_)) && paths.len() == 2;
            assert_eq!(paths.len(), if has_two || may_have_two { 2 } else { 1 }, "{number}");
            for path in *paths {
                assert!(path.folder.is_none_or(|folder| folder + 1 == path.path), "{number}");
                assert!(path.path < 6 && path.flags.is_none_or(|flags| flags < 6), "{number}");
                assert!(path.only_with.is_none_or(|(argument, _)| argument < 6), "{number}");
            }
        }
    }
}
