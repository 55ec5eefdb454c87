//! Memory in a process.

use libc::{EINVAL, ENOMEM, ENXIO, ERANGE};

use crate::client::status::*;
use crate::client::*;
use crate::rules;

/// What is to be mapped: device, memory, offset, length, flags.
pub(crate) type Wish = (u32, u32, u64, u64, u64);

pub(crate) fn map(
    client: &Client,
    (device, memory, offset, length, flags): Wish,
    fd: Fd,
) -> (u32, u64) {
    let mut args = Struct::new("nv_ioctl_nvos33_parameters_with_fd")
        .with("params.hClient", client.handle.into())
        .with("params.hDevice", device.into())
        .with("params.hMemory", memory.into())
        .with("params.offset", offset)
        .with("params.length", length)
        .with("params.flags", flags)
        .with("params.status", 0xdead)
        .with("fd", fd as u64);
    assert_eq!(escape(client.fd, 0x4e, &mut args), Ok(()));
    (args.get("params.status") as u32, args.get("params.pLinearAddress"))
}

pub(crate) fn unmap(client: &Client, device: u32, memory: u32, address: u64) -> u32 {
    let mut args = Struct::new("NVOS34_PARAMETERS")
        .with("hClient", client.handle.into())
        .with("hDevice", device.into())
        .with("hMemory", memory.into())
        .with("pLinearAddress", address);
    assert_eq!(escape(client.fd, 0x4f, &mut args), Ok(()));
    args.get("status") as u32
}

pub(crate) fn mmap(fd: Fd, length: usize, offset: i64) -> Result<&'static mut [u8], i32> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, fd, offset);
        if at == libc::MAP_FAILED {
            return Err(errno());
        }
        Ok(std::slice::from_raw_parts_mut(at.cast(), length))
    }
}

/// All of some memory, by a file of the kind that shows it.
pub(crate) fn shown(
    client: &Client,
    device: u32,
    memory: u32,
    size: usize,
    file: &str,
) -> &'static mut [u8] {
    let fd = open(file).unwrap();
    assert_eq!(map(client, (device, memory, 0, size as u64, 0), fd).0, OK);
    mmap(fd, size, 0).unwrap()
}

/// Whether a program ends well that has a debugger.
fn passes_when_traced(program: &dyn Fn()) -> bool {
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(program));
            libc::_exit(i32::from(done.is_err()));
        }
        let mut status = 0;
        loop {
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            if libc::WIFEXITED(status) {
                return libc::WEXITSTATUS(status) == 0;
            }
            libc::ptrace(libc::PTRACE_CONT, child, 0, 0);
        }
    }
}

fn memory(client: &Client, device: u32, class: u32, size: u64) -> u32 {
    client.alloc(device, class, Some(&mut memory_params(class, size))).unwrap()
}

rules! {
    two_mappings_show_the_same_memory {
        let (client, device, _) = Client::with_device();
        let memory = memory(&client, device, SYSTEM_MEMORY, 16_384);
        let (first, second) = (control_file(), control_file());
        assert_eq!(map(&client, (device, memory, 0, 16_384, 0), first).0, OK);
        assert_eq!(map(&client, (device, memory, 8192, 4096, 0), second).0, OK);
        let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (whole, part) = (mmap(first, 16_384, 0).unwrap(), mmap(second, 4096, 0).unwrap());
        assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), before, "no descriptor is left");
        whole[8192..8197].copy_from_slice(b"hello");
        assert_eq!(&part[..5], b"hello");
        part[4095] = 7;
        assert_eq!(whole[12_287], 7);
    }

    a_gpus_memory_is_shown_by_its_file {
        let (client, device, subdevice) = Client::with_device();
        let memory = memory(&client, device, VIDEO_MEMORY, 65_536);
        let (gpu, control) = (open("/dev/nvidia0").unwrap(), control_file());
        let wish = (subdevice, memory, 0, 65_536, 0);
        assert_eq!(map(&client, wish, control).0, INVALID_ARGUMENT);
        assert_eq!(map(&client, wish, gpu).0, OK);
        assert_eq!(mmap(gpu, 4096, 0).err(), Some(ENXIO), "all of it or nothing");
        let bytes = mmap(gpu, 65_536, 0).unwrap();
        bytes[65_535] = 3;
        assert_eq!((bytes[0], bytes[65_535]), (0, 3));
    }

    a_file_shows_what_it_was_told {
        let (client, device, _) = Client::with_device();
        let memory = memory(&client, device, SYSTEM_MEMORY, 8192);
        let (fd, gpu) = (control_file(), open("/dev/nvidia0").unwrap());
        assert_eq!(mmap(fd, 4096, 0).err(), Some(EINVAL), "nothing yet");
        let wish = (device, memory, 0, 4096, 0);
        assert_eq!(map(&client, wish, gpu).0, INVALID_ARGUMENT);
        assert_eq!(map(&client, wish, 999).0, INVALID_ARGUMENT);
        assert_eq!(map(&client, wish, fd).0, OK);
        assert_eq!(map(&client, wish, fd).0, STATE_IN_USE, "once");
        assert_eq!(mmap(fd, 4096, 4096).err(), Some(EINVAL));
        assert_eq!(mmap(fd, 16_384, 0).err(), Some(ERANGE));
        assert_eq!(mmap(fd, usize::MAX, 0).err(), Some(ENOMEM));
        assert!(mmap(fd, 4096, 0).is_ok());
    }

    wishes_must_fit_the_memory {
        let (client, device, subdevice) = Client::with_device();
        let memory = memory(&client, device, SYSTEM_MEMORY, 8192);
        let fd = control_file();
        for (wish, status) in [
            ((device, memory, 8192, 1, 0), INVALID_BASE),
            ((device, memory, 0, 0, 0), INVALID_LIMIT),
            ((device, memory, 4096, 4097, 0), INVALID_LIMIT),
            ((device, memory, 1, u64::MAX, 0), INVALID_LIMIT),
            ((device, memory, 0, 1, 3), INVALID_FLAGS),
            ((device, memory, 0, 1, 1 << 4), INVALID_FLAGS),
            ((device, memory, 0, 1, 1 << 8), INSUFFICIENT_PERMISSIONS),
            ((device, 0x999, 0, 1, 0), OBJECT_NOT_FOUND),
            ((0x999, memory, 0, 1, 0), OBJECT_NOT_FOUND),
            ((client.handle, memory, 0, 1, 0), INVALID_OBJECT_PARENT),
            ((memory, memory, 0, 1, 0), INVALID_OBJECT_PARENT),
            ((device, subdevice, 0, 1, 0), NOT_SUPPORTED),
        ] {
            assert_eq!(map(&client, wish, fd).0, status, "{wish:?}");
        }
        assert_eq!(map(&client, (device, memory, 0, 8192, 0), fd).0, OK, "none of them told the file");
    }

    mappings_are_forgotten_by_their_address {
        let (client, device, _) = Client::with_device();
        let memory = memory(&client, device, SYSTEM_MEMORY, 8192);
        let (status, address) = map(&client, (device, memory, 0, 4096, 0), control_file());
        assert_eq!(status, OK);
        assert_eq!(unmap(&client, device, memory, address + 1), OBJECT_NOT_FOUND);
        assert_eq!(unmap(&client, device, memory, address), OK);
        assert_eq!(unmap(&client, device, memory, address), OBJECT_NOT_FOUND);
        let refused = map(&client, (device, memory, 0, 4096, 0), 999).1;
        assert_eq!(unmap(&client, device, memory, refused), OBJECT_NOT_FOUND, "what no file shows");
    }

    memory_outlives_its_object {
        let (client, device, _) = Client::with_device();
        let memory = memory(&client, device, SYSTEM_MEMORY, 4096);
        let fd = control_file();
        assert_eq!(map(&client, (device, memory, 0, 4096, 0), fd).0, OK);
        let bytes = mmap(fd, 4096, 0).unwrap();
        bytes[9] = 9;
        assert_eq!(client.free(client.handle), OK);
        unsafe { libc::close(fd) };
        assert_eq!(bytes[9], 9);
    }

    a_traced_process_maps_as_well {
        let (client, device, _) = Client::with_device();
        let memory = memory(&client, device, SYSTEM_MEMORY, 4096);
        let (fd, other) = (control_file(), control_file());
        assert_eq!(map(&client, (device, memory, 0, 4096, 0), fd).0, OK);
        assert_eq!(map(&client, (device, memory, 0, 4096, 0), other).0, OK);
        mmap(other, 4096, 0).unwrap()[5] = 5;
        assert!(passes_when_traced(&|| assert_eq!(mmap(fd, 4096, 0).unwrap()[5], 5)));
    }

    the_older_way_maps_at_once {
        let (client, device, _) = Client::with_device();
        let gpu = open("/dev/nvidia0").unwrap();
        let ask = |class: u32, flags: u64, limit: u64, fd: Fd| {
            Struct::new("nv_ioctl_nvos02_parameters_with_fd")
                .with("params.hRoot", client.handle.into())
                .with("params.hObjectParent", device.into())
                .with("params.hObjectNew", 0x77)
                .with("params.hClass", class.into())
                .with("params.flags", flags)
                .with("params.limit", limit)
                .with("fd", fd as u64)
        };
        // The file of a GPU takes this call, and its clients are another's until it is registered.
        let mut args = ask(SYSTEM_MEMORY, 0, 4095, 0);
        assert_eq!(escape(client.fd, 0x27, &mut args), Err(EINVAL));
        assert_eq!(escape(gpu, 0x27, &mut args), Ok(()));
        assert_eq!(args.get("params.status") as u32, INVALID_CLIENT);
        let mut link = Struct::new("nv_ioctl_register_fd_t").with("ctl_fd", client.fd as u64);
        assert_eq!(escape(gpu, 201, &mut link), Ok(()));
        let status = |args: &mut Struct| {
            assert_eq!(escape(gpu, 0x27, args), Ok(()));
            args.get("params.status") as u32
        };
        assert_eq!(status(&mut ask(0x1234, 0, 4095, 0)), INVALID_CLASS);
        assert_eq!(status(&mut ask(SYSTEM_MEMORY, 2 << 8, 4095, 0)), INVALID_FLAGS);
        assert_eq!(status(&mut ask(SYSTEM_MEMORY, 1 << 16, 4095, 0)), INVALID_FLAGS);
        let fd = control_file();
        assert_eq!(status(&mut ask(SYSTEM_MEMORY, 0, 4095, fd)), OK);
        mmap(fd, 4096, 0).unwrap()[0] = 1;
        assert_eq!(client.free(0x77), OK);
        assert_eq!(status(&mut ask(SYSTEM_MEMORY, 1 << 30, 4095, 999)), OK, "not to be mapped");
    }
}
