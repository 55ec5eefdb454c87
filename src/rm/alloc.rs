//! `NV_ESC_RM_ALLOC` in whichever form a driver has it.
//!
//! There are two structs, of different sizes, and each has changed: 535.43.02 put the size of
//! the parameters where the status was, in one of them without a change of size. So the fields are
//! found by name in the driver's own layout, as the lock has it.

use std::os::fd::BorrowedFd;

use super::escape::{self, Bytes};
use crate::check::Layout;
use crate::driver::AnyDriver;
use crate::ioctl::Failure;
use crate::{Handle, P64};

/// What an object is made of.
pub(super) struct AllocRequest {
    pub(super) client: Handle,
    pub(super) parent: Handle,
    pub(super) object: Handle,
    pub(super) class: u32,
    pub(super) params: P64,
    pub(super) params_size: u32,
    pub(super) rights: P64,
}

/// Both forms of one driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forms {
    /// `NVOS21_PARAMETERS`.
    short: Form,
    /// `NVOS64_PARAMETERS`, which also has the requested rights.
    long: Form,
}

/// Offsets of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    size: usize,
    client: usize,
    parent: usize,
    object: usize,
    class: usize,
    params: usize,
    params_size: Option<usize>,
    rights: Option<usize>,
    status: usize,
}

/// As large as the largest form.
const LARGEST: usize = 48;

impl Forms {
    /// Those of a driver; `None` where it has none that is known.
    pub(super) fn of(driver: &AnyDriver) -> Option<Self> {
        let form = |name| Form::of(driver.layout(name)?);
        Some(Self { short: form("NVOS21_PARAMETERS")?, long: form("NVOS64_PARAMETERS")? })
    }

    /// Makes an object, and gives its handle.
    ///
    /// # Safety
    ///
    /// `fd` is of `/dev/nvidiactl` of this driver, and `params` and `rights` are what the class takes.
    pub(super) unsafe fn alloc(
        &self,
        fd: BorrowedFd<'_>,
        request: &AllocRequest,
    ) -> Result<Handle, Failure> {
        let form = if request.rights.is_null() { &self.short } else { &self.long };
        let mut bytes = form.written(request);
        // SAFETY: `form.size` is the lock's size of the driver's parameters, and `bytes` has room for the largest
        // form; `params` and `rights` in it are what the class takes, as the caller promises.
        unsafe { escape::call_bytes(fd, escape::ALLOC, bytes.0.as_mut_ptr(), form.size) }
            .map_err(|error| Failure::Errno(error.raw_os_error().unwrap_or_default()))?;
        escape::made(escape::status_result(bytes.u32(form.status)))?;
        Ok(Handle(bytes.u32(form.object)))
    }
}

impl Form {
    fn of(layout: &Layout) -> Option<Self> {
        let field = |name: &str, size: u32| escape::place(layout, name, size);
        let form = Self {
            size: layout.size as usize,
            client: field("hRoot", 4)?,
            parent: field("hObjectParent", 4)?,
            object: field("hObjectNew", 4)?,
            class: field("hClass", 4)?,
            params: field("pAllocParms", 8)?,
            params_size: field("paramsSize", 4),
            rights: field("pRightsRequested", 8),
            status: field("status", 4)?,
        };
        (form.size <= LARGEST).then_some(form)
    }

    fn written(&self, request: &AllocRequest) -> Bytes<LARGEST> {
        let mut bytes = Bytes::zeroed();
        let mut put = |at: usize, value: &[u8]| bytes.put(at, value);
        put(self.client, &request.client.0.to_ne_bytes());
        put(self.parent, &request.parent.0.to_ne_bytes());
        put(self.object, &request.object.0.to_ne_bytes());
        put(self.class, &request.class.to_ne_bytes());
        put(self.params, &request.params.0.to_ne_bytes());
        if let Some(at) = self.params_size {
            put(at, &request.params_size.to_ne_bytes());
        }
        if let Some(at) = self.rights {
            put(at, &request.rights.0.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: AllocRequest = AllocRequest {
        client: Handle(0x11),
        parent: Handle(0x22),
        object: Handle(0x33),
        class: 0x2080,
        params: P64(0x7777_0000_1111),
        params_size: 0x44,
        rights: P64(0x8888),
    };

    fn words(form: &Form) -> Vec<u32> {
        let bytes = form.written(&REQUEST);
        (0..form.size / 4).map(|at| bytes.u32(4 * at)).collect()
    }

    #[test]
    fn every_driver_has_both_forms() {
        for driver in AnyDriver::all() {
            let forms = Forms::of(driver);
            let sizes = forms.map(|forms| (forms.short.size, forms.long.size));
            let sized = forms.is_some_and(|forms| forms.short.params_size.is_some());
            let wanted = if sized { (32, 48) } else { (32, 40) };
            assert_eq!(sizes, Some(wanted), "{driver:?}");
            assert_eq!(forms.map(|forms| forms.short.status), Some(if sized { 28 } else { 24 }));
        }
    }

    #[cfg(feature = "driver-530")]
    #[test]
    fn before_535_the_size_is_not_said() {
        let driver = AnyDriver::for_version("530.41.03").ok().and_then(Forms::of);
        let words = driver.map(|forms| (words(&forms.short), words(&forms.long)));
        let short = vec![0x11, 0x22, 0x33, 0x2080, 0x1111, 0x7777, 0, 0];
        let long = vec![0x11, 0x22, 0x33, 0x2080, 0x1111, 0x7777, 0x8888, 0, 0, 0];
        assert_eq!(words, Some((short, long)));
    }

    #[cfg(feature = "driver-535")]
    #[test]
    fn from_535_on_it_stands_where_the_status_was() {
        let driver = AnyDriver::for_version("535.43.02").ok().and_then(Forms::of);
        let words = driver.map(|forms| (words(&forms.short), words(&forms.long)));
        let short = vec![0x11, 0x22, 0x33, 0x2080, 0x1111, 0x7777, 0x44, 0];
        let long = vec![0x11, 0x22, 0x33, 0x2080, 0x1111, 0x7777, 0x8888, 0, 0x44, 0, 0, 0];
        assert_eq!(words, Some((short, long)));
    }
}
