//! One set of parameters, and what its roles find in it.

use super::Error;
use super::field::{self, FieldPlace, Form};
use crate::Handle;
use crate::call::{
    Accepts, CallKind, Direction, FdRole, HandleMeaning, HandleRole, Info, Pointer, RoleField,
};
use crate::driver::{PlainRecord, Record};

/// The parameters of a call as bytes, with what is known of them.
#[derive(Debug)]
pub struct Params<'b> {
    info: &'static Info,
    /// Nothing where the parameters have none, or are copied without a look at them.
    form: Option<Form>,
    bytes: &'b mut [u8],
}

impl<'b> Params<'b> {
    /// Takes the parameters of a call that is known by number.
    ///
    /// # Errors
    ///
    /// When nobody knows the roles of the call, or it has some and takes no parameters of that size.
    pub fn new(info: &'static Info, bytes: &'b mut [u8]) -> Result<Self, Error> {
        let form = form(info, bytes.len())?;
        Ok(Self { info, form, bytes })
    }

    /// Takes the parameters of a call that is known by type. One whose roles nobody knows
    /// ([`Info::roles_known`]) does not compile.
    pub fn of<C: Accepts<P>, P: PlainRecord>(params: &'b mut P) -> Self {
        Self::of_bytes::<C, P>(params.bytes_mut())
    }

    /// Takes the parameters of a call that is known by type, where they hold a union that may be
    /// uninitialised in part.
    ///
    #[cfg_attr(feature = "driver-550", doc = "```")]
    #[cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
    /// use nvabi::driver::Record;
    /// use nvabi::proxy::Params;
    /// use nvabi::r550::{self, NVOS32_PARAMETERS, frontend::NV_ESC_RM_VID_HEAP_CONTROL};
    ///
    /// let mut call =
    ///     NVOS32_PARAMETERS { function: r550::NVOS32_FUNCTION_FREE, ..Record::zeroed() };
    /// // SAFETY: it was zeroed, and its union was left alone.
    /// let mut params = unsafe { Params::of_initialized::<NV_ESC_RM_VID_HEAP_CONTROL, _>(&mut call) };
    /// # params.visit_handles(|_| {});
    /// ```
    ///
    /// Without the promise the same does not compile, since the union may be made of a smaller member:
    ///
    #[cfg_attr(feature = "driver-550", doc = "```compile_fail")]
    #[cfg_attr(not(feature = "driver-550"), doc = "```ignore")]
    /// # use nvabi::driver::Record;
    /// # use nvabi::proxy::Params;
    /// # use nvabi::r550::{self, NVOS32_PARAMETERS, frontend::NV_ESC_RM_VID_HEAP_CONTROL};
    /// # let mut call =
    /// #     NVOS32_PARAMETERS { function: r550::NVOS32_FUNCTION_FREE, ..Record::zeroed() };
    /// let mut params = Params::of::<NV_ESC_RM_VID_HEAP_CONTROL, _>(&mut call);
    /// # params.visit_handles(|_| {});
    /// ```
    ///
    /// # Safety
    ///
    /// Every byte of `params` is initialised. So it is of [`Record::zeroed`], and stays so while
    /// members of the unions in it are assigned to, and not a whole union that was made of a member
    /// smaller than it.
    pub unsafe fn of_initialized<C: Accepts<P>, P: Record>(params: &'b mut P) -> Self {
        let (start, size) = (std::ptr::from_mut(params).cast(), size_of::<P>());
        // SAFETY: the bytes are those of the borrow, which is handed on, and initialised, as the caller
        // promises. Whatever is written to them is a value of `P`, as `Record` promises.
        Self::of_bytes::<C, P>(unsafe { std::slice::from_raw_parts_mut(start, size) })
    }

    fn of_bytes<C: Accepts<P>, P: Record>(bytes: &'b mut [u8]) -> Self {
        const { assert!(C::INFO.roles_known, "no spec gives the roles of the fields of this call") };
        Self { info: C::INFO, form: Form::of_params(C::INFO, C::FORM), bytes }
    }

    /// The parameters.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Visits every file descriptor.
    pub fn visit_fds(&mut self, visit: impl FnMut(&mut Fd<'_>)) {
        if let Some(form) = self.form {
            visit_fds(self.info.fds, form, self.bytes, visit);
        }
    }

    /// Visits every address in the caller's memory, also those that the driver does not follow.
    pub fn visit_pointers(&mut self, visit: impl FnMut(&mut PointerField<'_>)) {
        if let Some(form) = self.form {
            visit_pointers(self.info.pointers, form, self.bytes, visit);
        }
    }

    /// Visits every field that names an object, or would if it were not 0.
    pub fn visit_handles(&mut self, visit: impl FnMut(&mut HandleField<'_>)) {
        if let Some(form) = self.form {
            visit_handles(self.info.handles, form, self.bytes, visit);
        }
    }
}

/// Each place of a field, with the bytes of the record that it counts from: there are several where
/// records follow each other.
fn each(
    form: Form,
    bytes: &mut [u8],
    field: &RoleField,
    visit: &mut impl FnMut(&mut [u8], FieldPlace, (usize, usize)),
) {
    for element in bytes.chunks_exact_mut(form.size.max(1)) {
        let places = field::places(form, field);
        let count = places.len();
        for (i, place) in places.enumerate() {
            visit(element, place, (i, count));
        }
    }
}

/// Visits the file descriptors in records of one form that follow each other.
pub(super) fn visit_fds(
    roles: &'static [FdRole],
    form: Form,
    bytes: &mut [u8],
    mut visit: impl FnMut(&mut Fd<'_>),
) {
    for role in roles {
        each(form, bytes, &role.field, &mut |bytes, place, _| {
            visit(&mut Fd { role, bytes, place });
        });
    }
}

/// Visits the addresses in records of one form that follow each other.
pub(super) fn visit_pointers(
    roles: &'static [Pointer],
    form: Form,
    bytes: &mut [u8],
    mut visit: impl FnMut(&mut PointerField<'_>),
) {
    for role in roles {
        each(form, bytes, &role.field, &mut |bytes, place, index| {
            if !field::holds(form, bytes, role.when.as_ref(), index) {
                return;
            }
            let len = role.len.and_then(|len| field::evaluate(form, bytes, &len, index));
            let len = len.and_then(|len| len.checked_mul(role.unit.into()));
            visit(&mut PointerField { role, len, bytes, place });
        });
    }
}

/// Visits the handles in records of one form that follow each other.
pub(super) fn visit_handles(
    roles: &'static [HandleRole],
    form: Form,
    bytes: &mut [u8],
    mut visit: impl FnMut(&mut HandleField<'_>),
) {
    for role in roles {
        each(form, bytes, &role.field, &mut |bytes, place, index| {
            if field::holds(form, bytes, role.when.as_ref(), index) {
                visit(&mut HandleField { role, bytes, place });
            }
        });
    }
}

/// Which of a call's types parameters of this size are; none for a call without roles, whose
/// parameters are copied whatever they are. But of a UVM ioctl and of a class the driver copies as much as it
/// knows them to take, and so must be there.
pub(super) fn form(info: &'static Info, size: usize) -> Result<Option<Form>, Error> {
    if !info.roles_known {
        return Err(Error::RolesUnknown { call: info.name });
    }
    let is_free = match info.kind {
        CallKind::Uvm | CallKind::Class => info.params.is_empty() && size == 0,
        CallKind::Frontend | CallKind::Control | CallKind::Ioctl => true,
    };
    let mut forms = (0..info.sizes.len()).filter_map(|index| Form::of_params(info, index));
    match forms.find(|form| form.fits(size, info.array)) {
        None if is_free && info.is_simple() && info.handles.is_empty() => Ok(None),
        None => Err(Error::Size { call: info.name, size }),
        found => Ok(found),
    }
}

/// A file descriptor in a call.
#[derive(Debug)]
pub struct Fd<'b> {
    role: &'static FdRole,
    bytes: &'b mut [u8],
    place: FieldPlace,
}

impl Fd<'_> {
    /// The field.
    pub fn role(&self) -> &'static str {
        self.role.field.path
    }

    /// What it is when the call is back, where it is a new one: a name such as `dmabuf`.
    pub fn opens(&self) -> Option<&'static str> {
        self.role.opens
    }

    /// Its number. `None` where there is none: a negative one, or a null pointer. Of 64 bits it is the lower
    /// half, whatever the other holds, for so the driver takes it (escape.c:111,
    /// os.c:1440 and 4742 of 550.90.07).
    pub fn get(&self) -> Option<i32> {
        let value = field::get(self.bytes, self.place)?;
        let absent = self.place.is_pointer && value == 0;
        Some(value as u32 as i32).filter(|fd| *fd >= 0 && !absent)
    }

    /// Puts another number there, sign and all.
    pub fn set(&mut self, fd: i32) {
        field::set(self.bytes, self.place, i64::from(fd) as u64);
    }
}

/// An address in a call.
#[derive(Debug)]
pub struct PointerField<'b> {
    role: &'static Pointer,
    len: Option<u64>,
    bytes: &'b mut [u8],
    place: FieldPlace,
}

impl PointerField<'_> {
    /// What is known of it.
    pub fn role(&self) -> &'static Pointer {
        self.role
    }

    /// Which way the data goes.
    pub fn direction(&self) -> Option<Direction> {
        self.role.direction
    }

    /// How many bytes there are, where its role says so of itself and they are fewer than 2^64. What
    /// holds the parameters of another call has their size.
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == Some(0)
    }

    /// The address; 0 for none.
    pub fn get(&self) -> u64 {
        field::get(self.bytes, self.place).unwrap_or(0)
    }

    /// Puts another address there.
    pub fn set(&mut self, address: u64) {
        field::set(self.bytes, self.place, address);
    }
}

/// A field that names an object.
#[derive(Debug)]
pub struct HandleField<'b> {
    role: &'static HandleRole,
    bytes: &'b mut [u8],
    place: FieldPlace,
}

impl HandleField<'_> {
    /// The field.
    pub fn role(&self) -> &'static str {
        self.role.field.path
    }

    /// What it names.
    pub fn means(&self) -> HandleMeaning {
        self.role.means
    }

    /// The handle; 0 names nothing.
    pub fn get(&self) -> Handle {
        Handle(field::get(self.bytes, self.place).unwrap_or(0) as u32)
    }

    /// Puts another there.
    pub fn set(&mut self, handle: Handle) {
        field::set(self.bytes, self.place, handle.0.into());
    }
}
