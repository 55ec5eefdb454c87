//! Section 6: memory.

use nvabi::call::Ioctl;

use crate::client::*;
use crate::{reported, rules};

fn rw(
    change: impl FnOnce(&mut nvmap_rw_handle),
    handle: u32,
    memory: &mut [u8],
) -> nvmap_rw_handle {
    let mut args = nvmap_rw_handle {
        addr: memory.as_mut_ptr() as u64,
        handle,
        offset: 0,
        elem_size: 16,
        hmem_stride: 16,
        user_stride: 16,
        count: 4,
        ..zeroed()
    };
    change(&mut args);
    args
}

fn parameters(nvmap: Fd, handle: u32) -> Result<nvmap_handle_parameters> {
    let mut args = nvmap_handle_parameters { handle, ..zeroed() };
    call::<NVMAP_IOC_PARAMETERS>(nvmap, &mut args).map(|_| args)
}

rules! {
    from_fd_of_a_handle_without_memory {
        let nvmap = nvmap();
        let fd = get_fd(nvmap, create(nvmap, 4096).unwrap()).unwrap();
        let mut args = [fd, 0];
        assert_eq!(raw(nvmap, NVMAP_IOC_FROM_FD::REQUEST, args.as_mut_ptr() as u64), EINVAL);
    }

    a_long_copy_of_a_handle_holds_nobody_up {
        let nvmap = nvmap();
        let handle = create(nvmap, 16 << 20).unwrap();
        alloc(nvmap, handle).unwrap();
        let bytes = vec![7_u8; 1 << 20];
        let mut args = nvmap_rw_handle {
            addr: bytes.as_ptr() as u64,
            handle,
            elem_size: 1,
            hmem_stride: 2,
            user_stride: 1,
            count: 1 << 20,
            ..zeroed()
        };
        let copying = std::thread::spawn(move || call::<NVMAP_IOC_WRITE>(nvmap, &mut args));
        // Who is held up is answered once, when the copy is done.
        let mut answered = 0;
        while answered < 64 && !copying.is_finished() {
            create(nvmap, 4096).unwrap();
            answered += 1;
        }
        assert_eq!(copying.join().unwrap(), Ok(0));
        assert!(answered >= 8, "{answered} calls were answered meanwhile");
        let memory = mmap(get_fd(nvmap, handle).unwrap(), 2 << 20, 0).unwrap();
        assert!(memory.bytes().chunks(2).all(|pair| pair == [7, 0]));
    }

    create_size_0_and_bad_pointer {
        let nvmap = nvmap();
        assert_eq!(create(nvmap, 0), Err(libc::EINVAL));
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE::REQUEST, 8), EFAULT);
        let mut size = 0_u64;
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, (&raw mut size) as u64), EINVAL);
    }

    create_any_size_is_rounded_to_pages {
        let nvmap = nvmap();
        let handle = create(nvmap, 5000).unwrap();
        assert_eq!(parameters(nvmap, handle).unwrap().size, 8192);
        let mut args = 5_u64 << 32;
        raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, (&raw mut args) as u64).unwrap();
        assert_eq!(parameters(nvmap, args as u32).unwrap().size, 5 << 32);
        let mut args = 1_u64 << 50;
        assert_eq!(raw(nvmap, NVMAP_IOC_CREATE_64::REQUEST, (&raw mut args) as u64), Ok(0));
        assert_eq!(alloc(nvmap, args as u32), ENOMEM, "the limit is met here");
    }

    create_reads_32_bits {
        let nvmap = nvmap();
        let mut args = [4096_u32, 77];
        raw(nvmap, NVMAP_IOC_CREATE::REQUEST, args.as_mut_ptr() as u64).unwrap();
        assert_eq!(parameters(nvmap, args[1]).unwrap().size, 4096);
    }

    handles_are_numbers_from_one_counter {
        let nvmap = nvmap();
        let first = create(nvmap, 4096).unwrap();
        assert!((0x7fff_ffff..0x8000_0100).contains(&first), "{first:#x}");
        assert_eq!(create(nvmap, 4096), Ok(first + 1));
        free(nvmap, first + 1).unwrap();
        in_child(move || {
            let mine = open("/dev/nvmap").unwrap();
            assert_eq!(create(mine, 4096), Ok(first + 2), "another process goes on");
            assert_eq!(alloc(mine, first), EINVAL, "and has its own");
        });
    }

    alloc_checks_in_order {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        let ask = |args| refused::<NVMAP_IOC_ALLOC>(nvmap, args);
        let args = alloc_args(handle);
        assert_eq!(ask(nvmap_alloc_handle { align: 3, handle: 0, ..args }), EINVAL);
        assert_eq!(ask(nvmap_alloc_handle { handle: 0, heap_mask: 0, ..args }), EINVAL);
        assert_eq!(ask(nvmap_alloc_handle { numa_nid: -2, heap_mask: 0, ..args }), EINVAL);
        assert_eq!(ask(nvmap_alloc_handle { numa_nid: 1 << 20, ..args }), EINVAL);
        assert_eq!(ask(nvmap_alloc_handle { handle: 5, heap_mask: 0, ..args }), EINVAL);
        assert_eq!(raw(nvmap, NVMAP_IOC_ALLOC::REQUEST, 8), EFAULT);
    }

    alloc_heap_0_absent_or_too_large {
        let nvmap = nvmap();
        let ask = |handle, heap_mask| {
            refused::<NVMAP_IOC_ALLOC>(nvmap, nvmap_alloc_handle { heap_mask, ..alloc_args(handle) })
        };
        let handle = create(nvmap, 4096).unwrap();
        assert_eq!(ask(handle, 0), ENOMEM);
        assert_eq!(ask(handle, 1 << 20), ENOMEM);
        assert_eq!(ask(handle, 1 << 31), ENOMEM, "there is no such bit");
        let huge = create(nvmap, 0xFFFF_F000).unwrap();
        assert_eq!(ask(huge, 1 << 2), ENOMEM, "larger than the carveout");
    }

    alloc_twice {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        assert_eq!(alloc(nvmap, handle), Ok(0));
        assert_eq!(alloc(nvmap, handle), Err(libc::EEXIST));
    }

    alloc_exclusive_heap_with_others {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        let args = nvmap_alloc_handle { heap_mask: IOVMM | 1 << 1, ..alloc_args(handle) };
        assert_eq!(refused::<NVMAP_IOC_ALLOC>(nvmap, args), EINVAL);
    }

    get_fd_of_what_is_no_handle {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        assert_eq!(get_fd(nvmap, 999), Err(libc::EBADF));
        assert_eq!(get_fd(nvmap, 0x8000_1234), Err(libc::EBADF));
        assert_eq!(get_fd(nvmap, ctrl as u32), Err(libc::EINVAL));
        let fd = buffer(nvmap, 4096);
        let again = get_fd(nvmap, fd as u32).unwrap();
        assert_ne!(again, fd, "a dma-buf is given again");
        assert_eq!(raw(nvmap, NVMAP_IOC_GET_FD::REQUEST, 8), EFAULT);
    }

    get_fd_gives_a_new_one_each_time {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        alloc(nvmap, handle).unwrap();
        let (first, second) = (get_fd(nvmap, handle).unwrap(), get_fd(nvmap, handle).unwrap());
        assert_ne!(first, second);
        let (a, b) = (mmap(first, 4096, 0).unwrap(), mmap(second, 4096, 0).unwrap());
        a.write(0, 0x1234);
        assert_eq!(b.read(0), 0x1234, "of the same memory");
    }

    get_fd_before_alloc_works_until_it_is_used {
        let (nvmap, space) = (nvmap(), space(ctrl()));
        let handle = create(nvmap, 4096).unwrap();
        let fd = get_fd(nvmap, handle).unwrap();
        assert_eq!(mmap(fd, 4096, 0).err(), Some(libc::EPERM));
        assert_eq!(map(space, fd), Err(libc::EINVAL));
        alloc(nvmap, handle).unwrap();
        assert!(mmap(fd, 4096, 0).is_ok());
        assert!(map(space, fd).is_ok());
    }

    free_of_a_descriptor_is_a_close {
        let nvmap = nvmap();
        let fd = buffer(nvmap, 4096);
        let other = unsafe { libc::dup(fd) };
        assert_eq!(free(nvmap, fd as u32), Ok(0));
        assert_eq!(unsafe { libc::close(fd) }, -1, "EBADF");
        assert_eq!(get_fd(nvmap, fd as u32), Err(libc::EBADF));
        assert!(mmap(other, 4096, 0).is_ok(), "the other is of the same file");
        assert_eq!(unsafe { libc::dup(0) }, fd, "the number is free again");
    }

    free_of_descriptors_by_many_threads_under_signals {
        extern "C" fn nothing(_: i32) {}
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let nvmap = nvmap();
        let before = open();
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
            let often = libc::timeval { tv_sec: 0, tv_usec: 300 };
            let timer = libc::itimerval { it_interval: often, it_value: often };
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
        }
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    for _ in 0..50 {
                        let fd = buffer(nvmap, 4096);
                        assert_eq!(free(nvmap, fd as u32), Ok(0));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        unsafe { libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), std::ptr::null_mut()) };
        assert_eq!(open(), before, "each once, and nobody else's");
    }

    free_is_by_value_and_never_fails {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        let request = NVMAP_IOC_FREE::REQUEST;
        assert_eq!(raw(nvmap, request, 0), Ok(0));
        assert_eq!(raw(nvmap, request, 12345), Ok(0), "nonsense");
        let signed = handle as i32 as i64 as u64;
        assert_eq!(raw(nvmap, request, signed), Ok(0), "sign-extended");
        assert_eq!(alloc(nvmap, handle), EINVAL, "it is gone");
        assert_eq!(raw(nvmap, request, signed), Ok(0), "twice");
    }

    heaps_are_carveouts_alone {
        let nvmap = nvmap();
        let mut heaps: nvmap_available_heaps = zeroed();
        assert_eq!(call::<NVMAP_IOC_GET_AVAILABLE_HEAPS>(nvmap, &mut heaps), Ok(0));
        assert_eq!(heaps.heaps, 1 << 28 | 1 << 2, "VPR and FSI, never IOVMM");
        assert_eq!(raw(nvmap, NVMAP_IOC_GET_AVAILABLE_HEAPS::REQUEST, 8), EINVAL, "copy failure");
    }

    query_heap_params_reads_what_it_declares_to_write {
        let nvmap = nvmap();
        let ask = |heap_mask| {
            let mut args = nvmap_query_heap_params { heap_mask, ..zeroed() };
            call::<NVMAP_IOC_QUERY_HEAP_PARAMS>(nvmap, &mut args).map(|_| args)
        };
        let system = ask(IOVMM).unwrap();
        assert!(system.total > 1 << 30 && system.free <= system.total);
        assert_eq!((system.largest_free_block, system.granule_size), (4096, 4096));
        assert_eq!(ask(1 << 1).err(), Some(libc::ENODEV), "not present");
        let none = ask(0).unwrap();
        assert_eq!((none.total, none.free, none.largest_free_block), (0, 0, 4096));
        assert_eq!(raw(nvmap, NVMAP_IOC_QUERY_HEAP_PARAMS::REQUEST, 8), EFAULT);
    }

    heap_size_and_parameters_fail_as_enodev {
        let nvmap = nvmap();
        let args = nvmap_heap_size { heap: 1 << 1, ..zeroed() };
        assert_eq!(refused::<NVMAP_IOC_GET_HEAP_SIZE>(nvmap, args), Err(libc::ENODEV));
        let args = nvmap_handle_parameters { handle: 7, ..zeroed() };
        assert_eq!(refused::<NVMAP_IOC_PARAMETERS>(nvmap, args), Err(libc::ENODEV));
        let mut args = nvmap_heap_size { heap: 1 << 28, ..zeroed() };
        assert_eq!(call::<NVMAP_IOC_GET_HEAP_SIZE>(nvmap, &mut args), Ok(0));
        assert_ne!(args.size, 0);
    }

    parameters_of_a_handle {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        assert_eq!(parameters(nvmap, handle).unwrap().heap, 0);
        let mut args = nvmap_alloc_handle { flags: 0x900 << 16 | 2, ..alloc_args(handle) };
        call::<NVMAP_IOC_ALLOC>(nvmap, &mut args).unwrap();
        let out = parameters(nvmap, handle).unwrap();
        assert_eq!((out.heap, out.coherency, out.align, out.contig), (1 << 30, 2, 4096, 0));
    }

    from_fd_wants_memory_of_nvmap {
        let (nvmap, ctrl) = (nvmap(), ctrl());
        let from = |fd: Fd| {
            let mut args = [fd as u32, 0];
            raw(nvmap, NVMAP_IOC_FROM_FD::REQUEST, args.as_mut_ptr() as u64).map(|_| args[1])
        };
        assert_eq!(from(999), Err(libc::EBADF));
        assert_eq!(from(ctrl), Err(libc::EINVAL));
        let fd = buffer(nvmap, 8192);
        let handle = from(fd).unwrap();
        assert_eq!(parameters(nvmap, handle).unwrap().size, 8192);
    }

    read_and_write_move_elements {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        alloc(nvmap, handle).unwrap();
        let fd = get_fd(nvmap, handle).unwrap();
        let memory = mmap(fd, 4096, 0).unwrap();
        let mut data: Vec<u8> = (0..64).collect();
        let mut args = rw(|args| args.hmem_stride = 32, handle, &mut data);
        assert_eq!(call::<NVMAP_IOC_WRITE>(nvmap, &mut args), Ok(0));
        assert_eq!(args.count, 64, "count becomes bytes");
        assert_eq!(memory.bytes()[32..48], data[16..32]);
        let mut back = vec![0; 64];
        let mut args = rw(|args| args.hmem_stride = 32, handle, &mut back);
        assert_eq!(call::<NVMAP_IOC_READ>(nvmap, &mut args), Ok(0));
        assert_eq!(back, data);
    }

    read_and_write_refuse_nothing_and_too_much {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        let mut data = vec![0; 64];
        let mut ask = |change: fn(&mut nvmap_rw_handle)| {
            let mut args = rw(change, handle, &mut data);
            call::<NVMAP_IOC_WRITE>(nvmap, &mut args)
        };
        assert_eq!(ask(|_| ()), EFAULT, "unallocated");
        alloc(nvmap, handle).unwrap();
        assert_eq!(ask(|args| args.addr = 0), EINVAL);
        assert_eq!(ask(|args| args.count = 0), EINVAL);
        assert_eq!(ask(|args| args.elem_size = 0), EINVAL);
        assert_eq!(ask(|args| args.handle = 3), EINVAL);
        assert_eq!(ask(|args| args.offset = 4096), EINVAL);
        assert_eq!(ask(|args| args.offset = 4096 - 32), EINVAL);
        assert_eq!(ask(|args| args.count = 1 << 50), EINVAL);
        assert_eq!(ask(|args| args.addr = 8), Err(libc::EINTR), "short copy");
    }

    dmabuf_mmap_past_the_end {
        let nvmap = nvmap();
        let fd = buffer(nvmap, 8192);
        assert_eq!(mmap(fd, 12288, 0).err(), Some(libc::EINVAL));
        assert_eq!(mmap(fd, 8192, 4096).err(), Some(libc::EINVAL));
        assert!(mmap(fd, 4096, 4096).is_ok());
    }

    dmabuf_mmap_of_protected_memory {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        let mut args = nvmap_alloc_handle { heap_mask: 1 << 28, ..alloc_args(handle) };
        call::<NVMAP_IOC_ALLOC>(nvmap, &mut args).unwrap();
        assert_eq!(mmap(get_fd(nvmap, handle).unwrap(), 4096, 0).err(), Some(libc::EPERM));
    }

    dup_handle_can_only_lose_rights {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        alloc(nvmap, handle).unwrap();
        let dup = |handle, access_flags| {
            let mut args = nvmap_duplicate_handle { handle, access_flags, dup_handle: 0 };
            call::<NVMAP_IOC_DUP_HANDLE>(nvmap, &mut args).map(|_| args.dup_handle)
        };
        let read_only = dup(handle, 1 << 9).unwrap();
        assert_eq!(dup(read_only, 0), Err(libc::EPERM));
        let fd = get_fd(nvmap, read_only).unwrap();
        assert_eq!(mmap(fd, 4096, 0).err(), Some(libc::EACCES), "to be written");
        let mut args = nvgpu_as_map_buffer_ex_args { flags: 2 << 10, ..map_args(fd) };
        let space = space(ctrl());
        assert_eq!(call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args), EINVAL, "RW of read-only");
        assert!(map(space, fd).is_ok());
    }

    from_va_checks_in_order {
        let (nvmap, pages) = (nvmap(), own_pages(4));
        let ask = |va, sizes, flags| from_va(nvmap, va, sizes, TAGGED | flags).map(i64::from);
        assert_eq!(raw(nvmap, NVMAP_IOC_FROM_VA::REQUEST, 8), EFAULT);
        let too_large = (0, 1 << 50);
        assert_eq!(ask(pages.at(0) + 8, too_large, 0), EINVAL, "not where a page begins");
        assert_eq!(ask(0x7fff_ffff_f000, too_large, 0), EINVAL, "nothing is there or behind");
        assert_eq!(ask(0xffff_ffff_ff60_0000, too_large, 0), EINVAL, "no process has that");
        pages.protect(0, 1, libc::PROT_READ);
        assert_eq!(ask(pages.at(0), too_large, 0), ENOMEM);
        assert_eq!(ask(pages.at(0), (4096, 0), 0), EINVAL, "it may not be written");
        assert!(ask(pages.at(0), (4096, 0), READ_ONLY).is_ok());
        assert_eq!(unsafe { libc::munmap(pages.at(2) as *mut libc::c_void, 4096) }, 0);
        assert_eq!(ask(pages.at(1), (2 * 4096, 0), 0), EINVAL, "not all of it is there");
        assert_eq!(ask(pages.at(2), (4096, 0), 0), EINVAL, "it is another's that follows");
        assert!(ask(pages.at(1), (4096, 0), 0).is_ok());
    }

    from_va_takes_copies_of_the_programs_own_by_force {
        let (nvmap, pages) = (nvmap(), own_pages(4));
        let ask = |page, count: u32, flags| {
            from_va(nvmap, pages.at(page), (count * 4096, 0), TAGGED | flags).map(i64::from)
        };
        pages.protect(1, 1, libc::PROT_READ);
        pages.protect(3, 1, libc::PROT_NONE);
        assert!(ask(0, 2, 0).is_ok() && ask(2, 2, 0).is_ok() && ask(3, 1, READ_ONLY).is_ok());
        let file = unsafe { libc::memfd_create(c"shared".as_ptr(), 0) };
        let shared = unsafe {
            assert_eq!(libc::ftruncate(file, 4096), 0);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = pages.at(1) as *mut libc::c_void;
            libc::mmap(at, 4096, libc::PROT_READ, flags, file, 0)
        };
        assert_ne!(shared, libc::MAP_FAILED);
        assert_eq!(ask(0, 2, 0), EINVAL, "the file's is no copy");
        assert!(ask(0, 2, READ_ONLY).is_ok());
    }

    from_va_takes_one_of_two_sizes_or_all {
        let (nvmap, pages) = (nvmap(), own_pages(4));
        let size = |page, sizes| {
            let handle = from_va(nvmap, pages.at(page), sizes, TAGGED).unwrap();
            parameters(nvmap, handle).unwrap().size
        };
        assert_eq!(size(0, (4096, 4 * 4096)), 4096, "the first counts");
        assert_eq!(size(0, (0, 2 * 4096)), 2 * 4096);
        assert_eq!((size(0, (0, 0)), size(3, (0, 0))), (4 * 4096, 4096), "to the end");
        assert_eq!((size(0, (5000, 0)), size(0, (1, 0))), (2 * 4096, 4096));
    }

    from_va_gives_a_handle_with_memory {
        let (nvmap, pages) = (nvmap(), own_pages(2));
        let make = |flags| from_va(nvmap, pages.at(0), (8192, 0), TAGGED | flags).unwrap();
        let (handle, read_only) = (make(3 | 1 << 6), make(READ_ONLY | 2));
        assert_eq!(read_only, handle + 1);
        let out = parameters(nvmap, handle).unwrap();
        assert_eq!((out.heap, out.coherency, out.align), (1 << 30, 3, 4096));
        assert_eq!((out.contig, out.access_flags), (1, 0));
        let out = parameters(nvmap, read_only).unwrap();
        assert_eq!((out.coherency, out.contig, out.access_flags), (2, 0, READ_ONLY));
        assert_eq!(alloc(nvmap, handle), Err(libc::EEXIST));
        let mut data: Vec<u8> = (1..65).collect();
        let mut args = rw(|args| args.offset = 4090, handle, &mut data);
        assert_eq!(call::<NVMAP_IOC_WRITE>(nvmap, &mut args), Ok(0));
        assert_eq!(pages.bytes()[4090..4090 + 64], data);
        pages.bytes()[4090] = 77;
        let mut back = vec![0; 64];
        let mut args = rw(|args| args.offset = 4090, read_only, &mut back);
        assert_eq!(call::<NVMAP_IOC_READ>(nvmap, &mut args), Ok(0));
        assert_eq!((back[0], &back[1..]), (77, &data[1..]));
        let mut args = rw(|_| (), read_only, &mut data);
        assert_eq!(call::<NVMAP_IOC_WRITE>(nvmap, &mut args), Err(libc::EPERM));
        let fd = get_fd(nvmap, read_only).unwrap();
        assert_eq!(unsafe { libc::lseek(fd, 0, libc::SEEK_END) }, 8192);
        let space = space(ctrl());
        let mut args = nvgpu_as_map_buffer_ex_args { flags: 2 << 10, ..map_args(fd) };
        assert_eq!(call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space, &mut args), EINVAL, "RW of read-only");
        assert!(map(space, fd).is_ok());
    }

    from_va_that_cannot_be_told_is_never_made {
        let (nvmap, pages, unwritable) = (nvmap(), own_pages(1), own_pages(1));
        let first = create(nvmap, 4096).unwrap();
        let args = [pages.at(0), 4096 | u64::from(TAGGED) << 32, 0];
        for (i, word) in args.iter().enumerate() {
            unsafe { unwritable.start.cast::<u64>().add(i).write(*word) };
        }
        unwritable.protect(0, 1, libc::PROT_READ);
        assert_eq!(raw(nvmap, NVMAP_IOC_FROM_VA::REQUEST, unwritable.at(0)), EFAULT);
        assert_eq!(get_fd(nvmap, first + 1), Err(libc::EBADF));
    }

    fence_rules {
        let fences = open("/dev/host1x-fence").unwrap();
        let args = host1x_create_fence { id: 20, threshold: 0, fence_fd: 0, reserved: [1] };
        assert_eq!(refused::<HOST1X_IOCTL_CREATE_FENCE>(fences, args), EINVAL, "reserved");
        let args = host1x_create_fence { id: 1024, reserved: [0], ..args };
        assert_eq!(refused::<HOST1X_IOCTL_CREATE_FENCE>(fences, args), EINVAL, "unknown point");
        let mut trigger = host1x_trigger_pollfd { fd: fences, id: 20, threshold: 0, reserved: 0 };
        assert_eq!(call::<HOST1X_IOCTL_TRIGGER_POLLFD>(fences, &mut trigger), EINVAL, "no pollfd");
        let mut pollfd: host1x_create_pollfd = zeroed();
        assert_eq!(call::<HOST1X_IOCTL_CREATE_POLLFD>(fences, &mut pollfd), Ok(0));
        trigger.fd = pollfd.fd;
        assert_eq!(call::<HOST1X_IOCTL_TRIGGER_POLLFD>(fences, &mut trigger), Ok(0));
        assert!(is_readable(pollfd.fd), "threshold 0 is long reached");
        let mut args = host1x_create_fence { id: 20, threshold: 1 << 20, fence_fd: 0, reserved: [0] };
        assert_eq!(call::<HOST1X_IOCTL_CREATE_FENCE>(fences, &mut args), Ok(0));
        assert!(!is_readable(args.fence_fd));
        let mut out: host1x_fence_extract_fence = zeroed();
        let mut extract = host1x_fence_extract {
            fence_fd: args.fence_fd, num_fences: 1, fences_ptr: (&raw mut out) as u64, reserved: [0; 2] };
        assert_eq!(call::<HOST1X_IOCTL_FENCE_EXTRACT>(fences, &mut extract), Ok(0));
        assert_eq!((out.id, out.threshold, extract.num_fences), (20, 1 << 20, 1));
    }
}

pub(crate) fn is_readable(fd: Fd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

const TAGGED: u32 = 0x900 << 16;
const READ_ONLY: u32 = 1 << 9;

reported! {
    from_va_without_a_tag_is_a_warning {
        assert!(from_va(nvmap(), own_pages(1).at(0), (4096, 0), 0).is_ok());
    } gives "untagged-allocation"

    own_pages_are_not_mapped_a_second_time {
        let (nvmap, pages) = (nvmap(), own_pages(1));
        let fd = get_fd(nvmap, from_va(nvmap, pages.at(0), (4096, 0), TAGGED).unwrap()).unwrap();
        assert_eq!(mmap(fd, 8192, 0).err(), Some(libc::EINVAL), "past the end");
        assert_eq!(mmap(fd, 4096, 0).err(), Some(libc::ENOSYS));
    } gives "not-simulated"

    alloc_without_a_tag_is_a_warning {
        let nvmap = nvmap();
        let handle = create(nvmap, 4096).unwrap();
        let mut args = nvmap_alloc_handle { flags: 1, ..alloc_args(handle) };
        assert_eq!(call::<NVMAP_IOC_ALLOC>(nvmap, &mut args), Ok(0));
    } gives "untagged-allocation"

    free_of_a_descriptor_closes_it {
        let nvmap = nvmap();
        let fd = buffer(nvmap, 4096);
        assert_eq!(free(nvmap, fd as u32), Ok(0));
        assert_eq!(map(space(ctrl()), fd), Err(libc::EINVAL), "it is no dma-buf any more");
    } gives "free-of-descriptor"
}
