//! Addresses that a program reserves, and parts of files that it maps there itself.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use super::share::{check_file, page};
use super::{Access, Allocation, Current, Mapping, Memory, pointer};
use crate::error::DeviceError;

/// Addresses that are mapped, and give nothing, but where a part of a file is.
#[derive(Debug)]
pub(super) struct Reservation {
    /// It may begin before the first address.
    mapping: Mapping,
    size: u64,
}

impl Mapping {
    /// Addresses that cannot be accessed.
    fn reserved(size: u64) -> Option<Self> {
        let hint = Self::hint(size);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: as in `Mapping::new`.
        let bytes = unsafe {
            libc::mmap(pointer(hint).cast(), size as usize, libc::PROT_NONE, kind, -1, 0)
        };
        let start = bytes.expose_provenance() as u64;
        (bytes != libc::MAP_FAILED).then_some(Self { start, size, file: None })
    }

    /// Puts a part of a file, or nothing (`None`), in the place of what is there.
    ///
    /// # Safety
    ///
    /// The range is inside this mapping, and nobody uses what was there.
    unsafe fn put(&self, address: u64, size: u64, file: Option<(RawFd, libc::off_t)>) -> bool {
        let (access, kind, descriptor, offset) = match file {
            Some((descriptor, offset)) => {
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, descriptor, offset)
            }
            None => {
                let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                (libc::PROT_NONE, kind, -1, 0)
            }
        };
        let kind = kind | libc::MAP_FIXED;
        // SAFETY: the caller says that the range is this mapping's and that what is there is not used.
        let bytes = unsafe {
            libc::mmap(pointer(address).cast(), size as usize, access, kind, descriptor, offset)
        };
        bytes != libc::MAP_FAILED
    }
}

impl Memory {
    /// Reserves addresses, from a multiple of `align` on, which is a power of two; the first one.
    pub(crate) fn reserve(&mut self, size: u64, align: u64) -> Result<u64, DeviceError> {
        let align = align.max(page());
        let total = size.checked_add(align).filter(|total| *total < 1 << 46);
        let mapping = total.and_then(Mapping::reserved).ok_or(DeviceError::OutOfMemory(size))?;
        let start = mapping.start.next_multiple_of(align);
        self.table_mut_unlocked().reservations.insert(start, Reservation { mapping, size });
        Ok(start)
    }

    /// Ends a reservation with nothing in it.
    pub(crate) fn unreserve(&mut self, start: u64, size: u64) -> Result<(), DeviceError> {
        let table = self.table_mut_unlocked();
        let is_whole = table.reservations.get(&start).is_some_and(|known| known.size == size);
        if !is_whole || table.has_any(start, size) {
            return Err(DeviceError::BadRange { address: start, size });
        }
        table.reservations.remove(&start);
        Ok(())
    }

    /// Maps a part of a file at reserved addresses where nothing is. No device reaches it yet, until
    /// [`Memory::open_to`].
    pub(crate) fn map_at(
        &mut self,
        address: u64,
        file: &File,
        offset: u64,
        size: u64,
    ) -> Result<(), DeviceError> {
        check_file(file, offset, size)?;
        let refused = DeviceError::BadRange { address, size };
        let Current { device, .. } = self.current;
        let table = self.table_mut_unlocked();
        let is_whole = [address, offset, size].iter().all(|number| number % page() == 0);
        if !is_whole || table.has_any(address, size) {
            return Err(refused);
        }
        let reservation = table.reservation(address, size).ok_or(refused)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| DeviceError::NoFile)?;
        // SAFETY: the range is inside the reservation, and no allocation is in it.
        let is_put =
            unsafe { reservation.mapping.put(address, size, Some((file.as_raw_fd(), offset))) };
        if !is_put {
            return Err(DeviceError::OutOfMemory(size));
        }
        let access = Access::Listed;
        let allocation = Allocation { size, chunk: None, device, open_to: 0, access };
        table.allocations.insert(address, allocation);
        if let Some(shadow) = &self.shadow {
            shadow.add(address, size);
        }
        Ok(())
    }

    /// Takes back what was mapped from an address on; the addresses stay reserved.
    pub(crate) fn unmap_at(&mut self, address: u64) -> Result<(), DeviceError> {
        let size = self.table().allocations.get(&address).map(|allocation| allocation.size);
        let size = size.ok_or(DeviceError::BadFree(address))?;
        let is_ours = self.table().reservation(address, size).is_some();
        if !is_ours {
            return Err(DeviceError::BadFree(address));
        }
        self.free(address)?;
        let table = self.table_mut_unlocked();
        if let Some(reservation) = table.reservation(address, size) {
            // SAFETY: the range is inside the reservation. The memory is borrowed mutably, so that no `GlobalAddress` is
            // left.
            unsafe { reservation.mapping.put(address, size, None) };
        }
        Ok(())
    }
}

impl super::Table {
    /// The reservation that a range is inside of.
    fn reservation(&self, address: u64, size: u64) -> Option<&Reservation> {
        let (start, reservation) = self.reservations.range(..=address).next_back()?;
        let end = address.checked_add(size)?;
        (end <= start + reservation.size).then_some(reservation)
    }

    /// Whether an allocation is anywhere in a range.
    fn has_any(&self, address: u64, size: u64) -> bool {
        let last = self.allocations.range(..address.saturating_add(size)).next_back();
        last.is_some_and(|(start, allocation)| start + allocation.size > address)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used)] // Functions beside tests count as none.

    use super::*;
    use crate::memory::AllocationCache;

    const PART: u64 = 1 << 16;

    /// Two parts of a file, in another order, beside each other: one range for copies.
    #[test]
    fn files_are_mapped_at_reserved_addresses() {
        let mut memory = Memory::default();
        let file = super::super::share::file(4 * PART).unwrap();
        let start = memory.reserve(4 * PART, 1 << 21).unwrap();
        assert_eq!(start % (1 << 21), 0);
        assert!(memory.read(start, &mut [0]).is_err());
        memory.map_at(start + PART, &file, 2 * PART, PART).unwrap();
        memory.map_at(start, &file, 3 * PART, PART).unwrap();
        memory.write(start + PART - 2, &[7; 4]).unwrap();
        let mut bytes = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[..2], 4 * PART - 2).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[2..], 2 * PART).unwrap();
        assert_eq!(bytes, [7; 4]);
        let reaches = |memory: &Memory| AllocationCache::new(memory).locate(start, 4).is_some();
        assert!(!reaches(&memory), "not even its own device");
        memory.open_to(start, 1);
        assert!(reaches(&memory));
        memory.unmap_at(start).unwrap();
        assert!(memory.read(start, &mut [0]).is_err() && memory.freed(start).is_some());
        memory.map_at(start, &file, 2 * PART, PART).unwrap();
        let mut byte = [0];
        memory.read(start, &mut byte).unwrap();
        assert_eq!(byte, [7], "the same memory twice");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut memory = Memory::default();
        let file = super::super::share::file(2 * PART).unwrap();
        let start = memory.reserve(2 * PART, PART).unwrap();
        memory.map_at(start, &file, 0, PART).unwrap();
        let own = memory.alloc(8).unwrap();
        for (address, offset, size) in [
            (start, 0, PART),
            (start + PART, 0, 2 * PART),
            (start + PART, PART, 2 * PART),
            (start + PART + 8, 0, PART),
            (own, 0, PART),
            (start.wrapping_sub(PART), 0, PART),
        ] {
            assert!(memory.map_at(address, &file, offset, size).is_err(), "{address:#x} {size}");
        }
        assert_eq!(memory.unmap_at(own), Err(DeviceError::BadFree(own)));
        assert!(memory.unmap_at(start + PART).is_err());
        assert!(memory.unreserve(start, 2 * PART).is_err(), "something is mapped");
        memory.unmap_at(start).unwrap();
        assert!(memory.unreserve(start, PART).is_err());
        memory.unreserve(start, 2 * PART).unwrap();
        assert!(memory.map_at(start, &file, 0, PART).is_err());
    }
}
