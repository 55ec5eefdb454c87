//! Random sequences of calls against a small model of the rules.
//!
//! The model is written from the rules and shares nothing with the simulator: it says what each call
//! returns, and where addresses may not be. It does not know where the allocator puts them.

use std::collections::BTreeMap;

use nvabi::call::Ioctl;
use nvabi_test::Random;

use crate::client::*;

/// Steps in all; some find nothing to do, and make no call.
const STEPS: u32 = 160_000;
/// Steps with one set of objects.
const EPISODE: u32 = 240;

const START: u64 = 0x20_0000;
const END: u64 = 0x8000_0000;
const PAGE: u64 = 4096;

#[test]
fn random_calls_do_what_the_model_says() {
    let name = concat!(module_path!(), "::random_calls_do_what_the_model_says");
    let report = crate::simulate(name, &[], || {
        let seed = std::env::var("NVABI_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
        let mut random = Random(seed.unwrap_or(20_260_101));
        let mut made = 0;
        while made < STEPS {
            made += episode(&mut random);
        }
    });
    let total: u64 = report.calls.values().map(|count| count.total).sum();
    assert!(total >= 100_000, "{total} calls");
    let failed: u64 = report.calls.values().flat_map(|count| count.errors.values()).sum();
    assert!(failed * 10 > total && failed * 10 < total * 9, "{failed} of {total} failed");
    assert_eq!(report.leaks, [], "{report}");
}

#[derive(Default)]
struct Buffer {
    size: u64,
    handle: u32,
    is_freed: bool,
    is_allocated: bool,
    fd: Option<Fd>,
}

struct Mapping {
    buffer: usize,
    kind: i16,
    flags: u32,
    size: u64,
    references: u32,
    area: Option<u64>,
}

struct Space {
    fd: Fd,
    areas: BTreeMap<u64, (u64, bool)>,
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Default)]
struct Group {
    fd: Fd,
    has_sync: bool,
    veids: BTreeMap<u32, Option<usize>>,
    members: Vec<usize>,
    /// The spaces of subcontexts that have channels, as of when the first came.
    live: BTreeMap<u32, Option<usize>>,
}

#[derive(Default)]
struct Channel {
    fd: Fd,
    is_closed: bool,
    space: Option<usize>,
    group: Option<usize>,
    wanted: u32,
    member: u32,
    watchdog_off: bool,
    is_set_up: bool,
    class: u32,
}

/// Everything that the client has.
struct World {
    nvmap: Fd,
    ctrl: Fd,
    buffers: Vec<Buffer>,
    spaces: Vec<Space>,
    groups: Vec<Group>,
    channels: Vec<Channel>,
}

fn episode(random: &mut Random) -> u32 {
    let mut world = World {
        nvmap: nvmap(),
        ctrl: ctrl(),
        buffers: Vec::new(),
        spaces: Vec::new(),
        groups: Vec::new(),
        channels: Vec::new(),
    };
    for _ in 0..EPISODE {
        world.step(random);
    }
    world.close(random);
    EPISODE
}

fn expect(result: Result, expected: std::result::Result<(), i32>, what: &str) {
    match (result, expected) {
        (Ok(0), Ok(())) => {}
        (Err(got), Err(wanted)) if got == wanted => {}
        (got, wanted) => panic!("{what}: {got:?}, not {wanted:?}"),
    }
}

impl World {
    fn step(&mut self, random: &mut Random) {
        match random.below(20) {
            0 | 1 => self.create(random),
            2 | 3 => self.alloc(random),
            4 | 5 => self.get_fd(random),
            6 => self.free(random),
            7..=9 => self.map(random),
            10 => self.unmap(random),
            11 => self.reserve(random),
            12 => self.unreserve(random),
            13 => self.open(random),
            14 => self.subcontext(random),
            15 => self.bind_space(random),
            16 | 17 => self.bind_group(random),
            18 => self.channel(random),
            _ => self.close_one(random),
        }
    }

    fn create(&mut self, random: &mut Random) {
        let size = [0, 1, 4096, 5000, 8192, 1 << 16, 3 << 20][random.below(7)];
        match create(self.nvmap, size) {
            Err(errno) => assert_eq!((size, errno), (0, libc::EINVAL), "create"),
            Ok(handle) => {
                assert_ne!(size, 0);
                assert!(self.buffers.iter().all(|buffer| buffer.handle < handle), "one counter");
                let size = u64::from(size).next_multiple_of(PAGE);
                self.buffers.push(Buffer { size, handle, ..Buffer::default() });
            }
        }
    }

    fn alloc(&mut self, random: &mut Random) {
        let index = random.below(self.buffers.len());
        let Some(buffer) = self.buffers.get_mut(index) else { return };
        let mut args = alloc_args(buffer.handle);
        let mut expected = match () {
            () if buffer.is_freed => Err(libc::EINVAL),
            () if buffer.is_allocated => Err(libc::EEXIST),
            () => Ok(()),
        };
        match random.below(8) {
            0 => {
                args.heap_mask = 0;
                expected = expected.and(Err(libc::ENOMEM));
                if !buffer.is_freed {
                    expected = Err(libc::ENOMEM);
                }
            }
            1 => {
                args.align = 3;
                expected = Err(libc::EINVAL);
            }
            _ => {}
        }
        expect(call::<NVMAP_IOC_ALLOC>(self.nvmap, &mut args), expected, "alloc");
        buffer.is_allocated |= expected.is_ok();
    }

    fn get_fd(&mut self, random: &mut Random) {
        let index = random.below(self.buffers.len());
        let Some(buffer) = self.buffers.get_mut(index) else { return };
        let result = get_fd(self.nvmap, buffer.handle);
        if buffer.is_freed {
            assert_eq!(result, Err(libc::EBADF), "get_fd of a freed handle");
            return;
        }
        let fd = result.expect("get_fd");
        if let Some(old) = buffer.fd.replace(fd) {
            close(old);
        }
    }

    fn free(&mut self, random: &mut Random) {
        let index = random.below(self.buffers.len());
        let Some(buffer) = self.buffers.get_mut(index) else { return };
        expect(free(self.nvmap, buffer.handle), Ok(()), "free");
        buffer.is_freed = true;
    }

    fn map(&mut self, random: &mut Random) {
        let (index, at) = (random.below(self.buffers.len()), random.below(self.spaces.len()));
        let Some(space) = self.spaces.get_mut(at) else { return };
        let buffer = self.buffers.get(index).filter(|buffer| buffer.fd.is_some());
        let (fd, size, is_allocated) = match buffer {
            Some(buffer) => (buffer.fd.unwrap_or(-1), buffer.size, buffer.is_allocated),
            None if random.one_in(2) => (self.ctrl, 0, false),
            None => (9999, 0, false),
        };
        let mut args = map_args(fd);
        args.flags = [0, 0, 0, 4, 1 << 1, 3 << 10][random.below(6)];
        args.incompr_kind = [0, 0, 0, 6, -1][random.below(5)];
        let is_fixed = random.one_in(2);
        if is_fixed {
            args.flags |= 1;
            let areas: Vec<u64> = space.areas.keys().copied().collect();
            let base = areas.get(random.below(areas.len())).copied().unwrap_or(START);
            args.offset = base + [0, 0, 0, 4096, 8192, 100][random.below(6)];
            args.mapping_size = [0, 0, 4096, 1 << 20][random.below(4)];
        } else if random.one_in(16) {
            args.offset = 4096;
        }
        let expected = match () {
            () if fd == 9999 => Err(libc::EBADF),
            () if buffer.is_none() => Err(libc::EINVAL),
            () if !is_fixed && args.offset != 0 => Err(libc::EINVAL),
            () if args.mapping_size > size => Err(libc::EINVAL),
            () if args.flags & (2 | 1 << 11 & args.flags << 1) != 0 => Err(libc::EINVAL),
            () if args.flags >> 10 & 3 == 3 || args.flags & 2 != 0 => Err(libc::EINVAL),
            () if !is_allocated => Err(libc::EINVAL),
            () => space.expect_map(&args, index, size),
        };
        let asked = args;
        let result = call::<NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space.fd, &mut args);
        match expected {
            Err(errno) => {
                assert_eq!(result, Err(errno), "map {:x} {:x}", asked.flags, asked.offset);
                assert_eq!(args.offset, asked.offset);
            }
            Ok(place) => {
                assert_eq!(result, Ok(0), "map {:x} {:x}", asked.flags, asked.offset);
                space.mapped(&asked, index, size, place, args.offset);
            }
        }
    }

    fn unmap(&mut self, random: &mut Random) {
        let at = random.below(self.spaces.len());
        let Some(space) = self.spaces.get_mut(at) else { return };
        let all: Vec<u64> = space.mappings.keys().copied().collect();
        let Some(at) = all.get(random.below(all.len())).copied() else { return };
        if random.one_in(4) {
            expect(unmap(space.fd, at + PAGE / 2), Ok(()), "unmap of nothing");
            return;
        }
        let is_shared_fixed =
            space.mappings.get(&at).is_some_and(|m| m.flags & 1 != 0 && m.references > 1);
        if is_shared_fixed && !random.one_in(50) {
            // It takes a tenth of a second.
            return;
        }
        expect(unmap(space.fd, at), Ok(()), "unmap");
        space.unmapped(at);
    }

    fn reserve(&mut self, random: &mut Random) {
        let at = random.below(self.spaces.len());
        let Some(space) = self.spaces.get_mut(at) else { return };
        let pages = [0, 1, 3, 16, 300][random.below(5)];
        if random.one_in(2) {
            let result = reserve(space.fd, pages, None);
            match pages {
                0 => assert_eq!(result, Err(libc::ENOMEM)),
                _ => {
                    let at = result.expect("a reservation");
                    space.check_free(at, block(pages * PAGE));
                    space.areas.insert(at, (pages * PAGE, false));
                }
            }
            return;
        }
        let at = START + random.below(4096) as u64 * 0x1_0000 + [0, 0, 2048][random.below(3)];
        let is_free = pages > 0 && at % PAGE == 0 && space.is_free(at, pages * PAGE);
        match reserve(space.fd, pages, Some(at)) {
            Ok(got) => {
                assert!(is_free && got == at, "reserve {at:#x} {pages}");
                space.areas.insert(at, (pages * PAGE, true));
            }
            Err(errno) => assert!(!is_free && errno == libc::ENOMEM, "reserve {at:#x} {pages}"),
        }
    }

    fn unreserve(&mut self, random: &mut Random) {
        let at = random.below(self.spaces.len());
        let Some(space) = self.spaces.get_mut(at) else { return };
        let all: Vec<u64> = space.areas.keys().copied().collect();
        let Some(at) = all.get(random.below(all.len())).copied() else { return };
        expect(unreserve(space.fd, at), Ok(()), "unreserve");
        space.areas.remove(&at);
        let inside: Vec<u64> = space
            .mappings
            .iter()
            .filter(|(_, mapping)| mapping.area == Some(at))
            .map(|(at, _)| *at)
            .collect();
        for at in inside {
            if let Some(mapping) = space.mappings.get_mut(&at) {
                mapping.area = None;
            }
            space.unmapped(at);
        }
    }

    fn open(&mut self, random: &mut Random) {
        match random.below(3) {
            0 if self.spaces.len() < 4 => self.spaces.push(Space {
                fd: space_in(self.ctrl, START, END),
                areas: BTreeMap::new(),
                mappings: BTreeMap::new(),
            }),
            1 if self.groups.len() < 4 => {
                self.groups.push(Group { fd: tsg(self.ctrl), ..Group::default() });
            }
            _ if self.channels.len() < 12 => {
                let fd = channel(self.ctrl);
                self.channels.push(Channel { fd, ..Channel::default() });
            }
            _ => {}
        }
    }

    fn subcontext(&mut self, random: &mut Random) {
        let (at, space) = (random.below(self.groups.len()), random.below(self.spaces.len()));
        let (Some(group), Some(fd)) =
            (self.groups.get_mut(at), self.spaces.get(space).map(|space| space.fd))
        else {
            return;
        };
        let kind = random.below(3) as u32;
        let expected = match kind {
            0 if group.has_sync => Err(libc::ENOSPC),
            0 => Ok(0),
            1 => Ok((1..64).find(|veid| !group.veids.contains_key(veid)).unwrap_or(0)),
            _ => Err(libc::EINVAL),
        };
        assert_eq!(subcontext(group.fd, fd, kind), expected, "subcontext");
        if let Ok(veid) = expected {
            group.has_sync |= veid == 0;
            group.veids.insert(veid, Some(space));
        }
    }

    fn bind_space(&mut self, random: &mut Random) {
        let (at, space) = (random.below(self.channels.len()), random.below(self.spaces.len()));
        let (Some(channel), Some(fd)) =
            (self.channels.get_mut(at), self.spaces.get(space).map(|space| space.fd))
        else {
            return;
        };
        let is_refused = channel.is_closed || channel.space.is_some();
        let expected = if is_refused { Err(libc::EINVAL) } else { Ok(()) };
        let target = if channel.is_closed { 9999 } else { channel.fd };
        expect(bind_space(fd, target), expected, "bind to a space");
        if expected.is_ok() {
            channel.space = Some(space);
        }
    }

    fn bind_group(&mut self, random: &mut Random) {
        let (at, to) = (random.below(self.channels.len()), random.below(self.groups.len()));
        let (Some(channel), Some(group)) = (self.channels.get_mut(at), self.groups.get_mut(to))
        else {
            return;
        };
        if channel.is_closed {
            expect(bind_tsg(group.fd, 9999, 0), Err(libc::EINVAL), "bind of nothing");
            return;
        }
        let veid = [0, 0, 1, 1, 2, 64][random.below(6)];
        let result = bind_tsg(group.fd, channel.fd, veid);
        if veid >= 64 {
            return expect(result, Err(libc::EINVAL), "subcontext 64");
        }
        channel.wanted = veid;
        let slot = group.veids.get(&veid).copied().flatten();
        if veid == 0 && slot.is_none() {
            if group.has_sync {
                return expect(result, Err(libc::ENOSPC), "sync is taken");
            }
            group.has_sync = true;
            group.veids.insert(0, channel.space);
        }
        let slot = group.veids.get(&veid).copied().flatten();
        if slot != channel.space || channel.group.is_some() {
            return expect(result, Err(libc::EINVAL), "another space, or in a group");
        }
        if group.live.get(&veid).is_some_and(|space| *space != channel.space) {
            return expect(result, Err(libc::EINVAL), "the subcontext has another space");
        }
        expect(result, Ok(()), "bind to a group");
        group.live.insert(veid, channel.space);
        channel.group = Some(to);
        channel.member = veid;
        group.members.push(at);
    }

    fn channel(&mut self, random: &mut Random) {
        let at = random.below(self.channels.len());
        let ring = self.buffers.iter().find(|b| b.is_allocated && b.fd.is_some() && b.size >= 8192);
        let ring = ring.and_then(|buffer| buffer.fd);
        let Some(channel) = self.channels.get_mut(at).filter(|channel| !channel.is_closed) else {
            return;
        };
        match random.below(4) {
            0 => {
                let status = random.below(4) as u32;
                let is_refused = status == 0 || status == 3 || (channel.is_set_up && status != 1);
                let expected = if is_refused { Err(libc::EINVAL) } else { Ok(()) };
                expect(watchdog(channel.fd, status), expected, "watchdog");
                if !is_refused {
                    channel.watchdog_off = status == 1;
                }
            }
            1 => {
                let (Some(ring), true) = (ring, channel.space.is_some() || random.one_in(2)) else {
                    return;
                };
                let expected = match () {
                    () if channel.space.is_none() || channel.group.is_none() => Err(libc::EINVAL),
                    () if channel.is_set_up => Err(libc::EEXIST),
                    () if !channel.watchdog_off => Err(libc::EINVAL),
                    () => Ok(()),
                };
                expect(setup(channel.fd, ring, ring).map(|_| 0), expected, "setup");
                channel.is_set_up |= expected.is_ok();
            }
            2 => {
                let class = [0xC7C0, 0xC7B5, 0x1234][random.below(3)];
                let is_refused =
                    channel.space.is_none() || channel.group.is_none() || class == 0x1234;
                let expected = if is_refused { Err(libc::EINVAL) } else { Ok(()) };
                expect(object(channel.fd, class), expected, "object");
                if !is_refused {
                    channel.class = class;
                }
            }
            _ => {
                if channel.space.is_some() {
                    let point = syncpoint(channel.fd).expect("a syncpoint");
                    assert!(point.gpu_va >= END && point.gpu_va < END + (4 << 30));
                    assert!(point.syncpoint_id >= 17);
                }
                let mut dead = 7_u32;
                let timedout = NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT::REQUEST;
                expect(raw(channel.fd, timedout, (&raw mut dead) as u64), Ok(()), "timedout");
                assert_eq!(dead == 0, channel.group.is_some());
            }
        }
    }

    fn close_one(&mut self, random: &mut Random) {
        let at = random.below(self.channels.len());
        if random.one_in(2) {
            if let Some(fd) = self.buffers.iter_mut().rev().find_map(|buffer| buffer.fd.take()) {
                close(fd);
            }
            return;
        }
        let Some(channel) = self.channels.get_mut(at).filter(|channel| !channel.is_closed) else {
            return;
        };
        close(channel.fd);
        channel.is_closed = true;
        let (member, wanted) = (channel.member, channel.wanted);
        let Some(group) = channel.group.take().and_then(|group| self.groups.get_mut(group)) else {
            return;
        };
        group.members.retain(|other| *other != at);
        let on_it = |other: &usize| self.channels[*other].member == member;
        if !group.members.iter().any(on_it) {
            // The subcontext goes with its last channel.
            group.live.remove(&member);
            group.has_sync &= wanted != 0;
            group.veids.remove(&wanted);
        }
    }

    fn close(self, random: &mut Random) {
        let channels = self.channels.iter().filter(|channel| !channel.is_closed);
        let mut all: Vec<Fd> = channels.map(|channel| channel.fd).collect();
        all.extend(self.buffers.iter().filter_map(|buffer| buffer.fd));
        all.extend(self.spaces.iter().map(|space| space.fd));
        all.extend(self.groups.iter().map(|group| group.fd));
        all.extend([self.nvmap, self.ctrl]);
        while !all.is_empty() {
            close(all.swap_remove(random.below(all.len())));
        }
    }
}

/// Where a mapping goes that succeeds.
enum Place {
    Again(u64),
    Fixed(u64),
    Anywhere,
}

/// What the allocator takes for a size.
fn block(size: u64) -> u64 {
    size.next_power_of_two()
}

impl Space {
    fn kind(args: &nvgpu_as_map_buffer_ex_args) -> i16 {
        args.incompr_kind
    }

    fn expect_map(
        &self,
        args: &nvgpu_as_map_buffer_ex_args,
        buffer: usize,
        size: u64,
    ) -> std::result::Result<Place, i32> {
        let is_same = |m: &Mapping| m.buffer == buffer && m.kind == Self::kind(args);
        let is_fixed = args.flags & 1 != 0;
        let found = if is_fixed {
            self.mappings.get(&args.offset).filter(|m| is_same(m)).map(|m| (args.offset, m))
        } else {
            self.mappings.iter().find(|(_, m)| is_same(m)).map(|(at, m)| (*at, m))
        };
        if let Some((at, _)) = found.filter(|(_, mapping)| mapping.flags == args.flags) {
            return Ok(Place::Again(at));
        }
        let length = if args.mapping_size == 0 { size } else { args.mapping_size };
        let mut place = Place::Anywhere;
        if is_fixed {
            let end = args.offset + length;
            let area = self.areas.range(..=args.offset).next_back();
            let area = area.filter(|(start, (size, _))| end <= *start + size);
            let hit = self.mappings.range(..end).next_back();
            let is_hit = hit.is_some_and(|(at, mapping)| at + mapping.size > args.offset);
            let Some((start, _)) = area.filter(|_| args.offset % PAGE == 0 && !is_hit) else {
                return Err(libc::EINVAL);
            };
            place = Place::Fixed(*start);
        }
        if Self::kind(args) == -1 { Err(libc::EINVAL) } else { Ok(place) }
    }

    fn mapped(
        &mut self,
        args: &nvgpu_as_map_buffer_ex_args,
        buffer: usize,
        size: u64,
        place: Place,
        at: u64,
    ) {
        let area = match place {
            Place::Again(same) => {
                assert_eq!(at, same, "the same address");
                if let Some(mapping) = self.mappings.get_mut(&at) {
                    mapping.references += 1;
                }
                return;
            }
            Place::Fixed(area) => {
                assert_eq!(at, args.offset);
                Some(area)
            }
            Place::Anywhere => {
                self.check_free(at, block(size));
                None
            }
        };
        let size = if args.mapping_size == 0 { size } else { args.mapping_size };
        let (flags, kind) = (args.flags, Self::kind(args));
        self.mappings.insert(at, Mapping { buffer, kind, flags, size, references: 1, area });
    }

    fn unmapped(&mut self, at: u64) {
        let Some(mapping) = self.mappings.get_mut(&at) else { return };
        mapping.references -= 1;
        if mapping.references == 0 {
            self.mappings.remove(&at);
        }
    }

    /// Blocks that the allocator has given out.
    fn taken(&self) -> impl Iterator<Item = (u64, u64)> {
        let areas = self
            .areas
            .iter()
            .map(|(at, (size, is_fixed))| (*at, if *is_fixed { *size } else { block(*size) }));
        let mappings = self.mappings.iter().filter(|(_, mapping)| mapping.flags & 1 == 0);
        areas.chain(mappings.map(|(at, mapping)| (*at, block(mapping.size))))
    }

    fn is_free(&self, at: u64, size: u64) -> bool {
        at >= START
            && at + size <= END
            && self.taken().all(|(start, length)| start + length <= at || at + size <= start)
    }

    fn check_free(&self, at: u64, size: u64) {
        assert!(self.is_free(at, size), "{at:#x} is taken, or outside");
        assert_eq!((at - START) % size, 0, "blocks are aligned to their size");
    }
}
