//! Sets and their requests.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::slice;
use std::sync::Mutex;

use cpc::c::{self, Function, Subcode};
use cpc::{Attribute, Error, Request, RequestFlags, Set};

use crate::errno::{invalid, reported};
use crate::handler::tell;
use crate::object::{Kind, Object, Spare, get};
use crate::open::CpcT;

/// The target of a `cpc_set_t *`.
pub struct CpcSet {
    set: Set,
    /// Address of the handle.
    owner: usize,
}

impl CpcSet {
    pub(crate) fn set(&self) -> &Set {
        &self.set
    }
}

/// A `cpc_set_t`.
pub type CpcSetT = Object<CpcSet>;

impl Kind for CpcSet {
    const TAG: u64 = 0x6370_635f_7365_745f;
    fn spares() -> &'static Mutex<VecDeque<Spare<Self>>> {
        static SPARES: Mutex<VecDeque<Spare<CpcSet>>> = Mutex::new(VecDeque::new());
        &SPARES
    }
}

/// A `cpc_attr_t`.
#[repr(C)]
pub struct CpcAttr {
    pub(crate) name: *mut c_char,
    pub(crate) value: u64,
}

/// The set that `set` points to.
///
/// # Errors
///
/// EINVAL if it is not a set, or not one of the handle `cpc`.
///
/// # Safety
///
/// As for [`get`].
pub(crate) unsafe fn set_of<'a>(cpc: *mut CpcT, set: *mut CpcSetT) -> Result<&'a CpcSet, Error> {
    // SAFETY: the caller's promise.
    let found = unsafe { get(set)? };
    if found.owner != cpc.addr() {
        return Err(invalid("the set was not created with the handle"));
    }
    Ok(found)
}

/// `cpc_set_create(3CPC)`.
///
/// # Safety
///
/// `cpc` is a handle this library has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_set_create(cpc: *mut CpcT) -> *mut CpcSetT {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let set = Object::create(CpcSet { set: handle.cpc().create_set(), owner: cpc.addr() });
        handle.sets().push(set.expose_provenance());
        Ok(set)
    })
}

/// `cpc_set_destroy(3CPC)`: unbinds the set, if it is bound.
///
/// # Safety
///
/// `cpc` is a handle this library has returned; `set` may be anything. If it is a set of the
/// handle, no other call uses it meanwhile, in whichever thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_set_destroy(cpc: *mut CpcT, set: *mut CpcSetT) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let mut sets = handle.sets();
        let known = sets.iter().position(|known| *known == set.addr());
        sets.swap_remove(known.ok_or(invalid("the handle has no such set"))?);
        drop(sets);
        // SAFETY: it was in the list, so it is live.
        drop(unsafe { Object::destroy(set) });
        Ok(0)
    })
}

/// The attributes of a request.
///
/// # Safety
///
/// `attrs` points to `nattrs` attributes whose names are strings.
unsafe fn attributes(nattrs: c_uint, attrs: *const CpcAttr) -> Result<Vec<Attribute>, Error> {
    if nattrs == 0 {
        return Ok(Vec::new());
    }
    if nattrs as usize > Request::MAX_ATTRIBUTES {
        return Err(invalid("a request has at most 50 attributes"));
    }
    if attrs.is_null() {
        return Err(invalid("NULL in place of attributes"));
    }
    // SAFETY: the caller's promise.
    let attrs = unsafe { slice::from_raw_parts(attrs, nattrs as usize) };
    let attribute = |attr: &CpcAttr| {
        if attr.name.is_null() {
            let reason = "an attribute without a name";
            return Err(c::coded_error(Subcode::InvalidAttribute, reason));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(attr.name) }.to_string_lossy();
        Ok(Attribute::new(name, attr.value))
    };
    attrs.iter().map(attribute).collect()
}

/// `cpc_set_add_request(3CPC)`.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library, `event` is a string, and `attrs` points to `nattrs`
/// attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_set_add_request(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    event: *const c_char,
    preset: u64,
    flags: c_uint,
    nattrs: c_uint,
    attrs: *const CpcAttr,
) -> c_int {
    reported(|| {
        // SAFETY: the caller's promise.
        let (handle, set) = unsafe { (get(cpc)?, set_of(cpc, set)?) };
        if event.is_null() {
            return Err(invalid("NULL in place of an event"));
        }
        // SAFETY: the caller's promise.
        let event = unsafe { CStr::from_ptr(event) }.to_string_lossy().into_owned();
        // SAFETY: the caller's promise.
        let attributes = unsafe { attributes(nattrs, attrs) };
        let added = attributes.and_then(|attributes| {
            let flags = RequestFlags::from_bits_retain(flags);
            let request = Request::new(event).with_preset(preset).with_flags(flags);
            set.set.add(request.with_attributes(attributes))
        });
        let added = added.inspect_err(|error| tell(handle, Function::SetAddRequest, error))?;
        c_int::try_from(added).map_err(|_| invalid("too many requests"))
    })
}
