//! Walkers: requests, events, attributes, items of records.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cpc::{Error, EventNames, EventUses};

use crate::buf::index;
use crate::errno::{invalid, reported};
use crate::object::get;
use crate::open::{CpcT, text};
use crate::set::{CpcAttr, CpcSetT, set_of};

/// Is told an event.
type OnEvent = extern "C" fn(*mut c_void, *const c_char);
/// Is told an event of a counter.
type OnPicEvent = extern "C" fn(*mut c_void, c_uint, *const c_char);
/// Is told an item of a record and its index.
type OnItem = extern "C" fn(*mut c_void, *const c_char, c_int);
/// Is told a request.
type OnRequest =
    extern "C" fn(*mut c_void, c_int, *const c_char, u64, c_uint, c_int, *const CpcAttr);

/// The walk that a `target` of the interface stands for.
fn walk(target: c_int) -> Result<EventUses, Error> {
    let walk = c_uint::try_from(target).ok().and_then(EventUses::from_bits);
    walk.filter(|walk| !walk.is_empty()).ok_or(invalid("unknown target"))
}

/// A required callback.
fn called<T>(action: Option<T>) -> Result<T, Error> {
    action.ok_or(invalid("NULL in place of a function"))
}

/// `cpc_walk_requests(3CPC)`: the newest first, as the original does.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library, `action` is a function of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_requests(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    arg: *mut c_void,
    action: Option<OnRequest>,
) {
    reported(|| {
        // SAFETY: the caller's promise.
        let requests = unsafe { set_of(cpc, set)? }.set().requests();
        let action = called(action)?;
        for (number, request) in requests.iter().enumerate().rev() {
            let event = text(request.event());
            let names: Vec<_> = request.attributes().iter().map(|a| text(a.name())).collect();
            let attrs: Vec<CpcAttr> = names
                .iter()
                .zip(request.attributes())
                .map(|(name, a)| CpcAttr { name: name.as_ptr().cast_mut(), value: a.value() })
                .collect();
            let nattrs = attrs.len() as c_int;
            let attrs = if nattrs == 0 { std::ptr::null() } else { attrs.as_ptr() };
            let flags = request.flags().bits();
            action(arg, number as c_int, event.as_ptr(), request.preset(), flags, nattrs, attrs);
        }
        Ok(())
    });
}

/// Walks over all events.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
unsafe fn all(
    cpc: *mut CpcT,
    arg: *mut c_void,
    names: EventNames,
    target: c_int,
    action: Option<OnEvent>,
) {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let (action, walk) = (called(action)?, walk(target)?);
        for event in handle.cpc().events(names, walk) {
            action(arg, text(event).as_ptr());
        }
        Ok(())
    });
}

/// Walks over the events of one counter.
///
/// # Safety
///
/// As for [`cpc_walk_events_pic`].
unsafe fn of_pic(
    cpc: *mut CpcT,
    picno: c_uint,
    arg: *mut c_void,
    names: EventNames,
    target: c_int,
    action: Option<OnPicEvent>,
) {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let (action, walk) = (called(action)?, walk(target)?);
        for event in handle.cpc().events_of_counter(picno, names, walk)? {
            action(arg, picno, text(event).as_ptr());
        }
        Ok(())
    });
}

/// The target of walkers that do not name one.
const COUNTED: c_int = EventUses::COUNTING.bits() as c_int;

/// `cpc_walk_events_all(3CPC)`.
///
/// # Safety
///
/// `cpc` is a handle this library has returned, `action` a function of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_events_all(
    cpc: *mut CpcT,
    arg: *mut c_void,
    action: Option<OnEvent>,
) {
    // SAFETY: the caller's promise.
    unsafe { all(cpc, arg, EventNames::Platform, COUNTED, action) }
}

/// `cpc_walk_generic_events_all(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_generic_events_all(
    cpc: *mut CpcT,
    arg: *mut c_void,
    action: Option<OnEvent>,
) {
    // SAFETY: the caller's promise.
    unsafe { all(cpc, arg, EventNames::Generic, COUNTED, action) }
}

/// `cpc_walk_events_all_common(3CPC)`: platform events that can be counted or recorded.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_events_all_common(
    cpc: *mut CpcT,
    arg: *mut c_void,
    target: c_int,
    action: Option<OnEvent>,
) {
    // SAFETY: the caller's promise.
    unsafe { all(cpc, arg, EventNames::Platform, target, action) }
}

/// `cpc_walk_events_pic(3CPC)`: EINVAL if there is no such counter.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_events_pic(
    cpc: *mut CpcT,
    picno: c_uint,
    arg: *mut c_void,
    action: Option<OnPicEvent>,
) {
    // SAFETY: the caller's promise.
    unsafe { of_pic(cpc, picno, arg, EventNames::Platform, COUNTED, action) }
}

/// `cpc_walk_generic_events_pic(3CPC)`: EINVAL if there is no such counter.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_generic_events_pic(
    cpc: *mut CpcT,
    picno: c_uint,
    arg: *mut c_void,
    action: Option<OnPicEvent>,
) {
    // SAFETY: the caller's promise.
    unsafe { of_pic(cpc, picno, arg, EventNames::Generic, COUNTED, action) }
}

/// `cpc_walk_events_pic_common(3CPC)`.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_events_pic_common(
    cpc: *mut CpcT,
    picno: c_uint,
    arg: *mut c_void,
    target: c_int,
    action: Option<OnPicEvent>,
) {
    // SAFETY: the caller's promise.
    unsafe { of_pic(cpc, picno, arg, EventNames::Platform, target, action) }
}

/// `cpc_walk_attrs(3CPC)`: `picnum` last.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_attrs(cpc: *mut CpcT, arg: *mut c_void, action: Option<OnEvent>) {
    // SAFETY: the caller's promise.
    unsafe { cpc_walk_attrs_common(cpc, arg, COUNTED, action) }
}

/// `cpc_walk_attrs_common(3CPC)`: `picnum` last.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_attrs_common(
    cpc: *mut CpcT,
    arg: *mut c_void,
    target: c_int,
    action: Option<OnEvent>,
) {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let (action, walk) = (called(action)?, walk(target)?);
        for name in handle.cpc().attributes(walk) {
            action(arg, text(name).as_ptr());
        }
        Ok(())
    });
}

/// `cpc_walk_smpl_recitems(3CPC)`: nothing without SMPL.
///
/// # Safety
///
/// As for [`cpc_walk_events_all`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_smpl_recitems(
    cpc: *mut CpcT,
    arg: *mut c_void,
    action: Option<OnItem>,
) {
    reported(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { get(cpc)? };
        let action = called(action)?;
        if !handle.cpc().can_record() {
            return Err(invalid("the handle was not opened for SMPL"));
        }
        for (number, name) in handle.cpc().record_items().iter().enumerate() {
            action(arg, text(name).as_ptr(), number as c_int);
        }
        Ok(())
    });
}

/// `cpc_walk_smpl_recitems_req(3CPC)`: the items that mean something for one request.
///
/// # Safety
///
/// `cpc` and `set` are objects of this library, `action` is a function of the documented type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cpc_walk_smpl_recitems_req(
    cpc: *mut CpcT,
    set: *mut CpcSetT,
    request_index: c_int,
    arg: *mut c_void,
    action: Option<OnItem>,
) {
    reported(|| {
        // SAFETY: the caller's promise.
        let (handle, set) = unsafe { (get(cpc)?, set_of(cpc, set)?) };
        let action = called(action)?;
        for item in set.set().record_items_of(index(request_index)?)? {
            if let Some(name) = handle.cpc().record_items().get(item) {
                action(arg, text(name).as_ptr(), item as c_int);
            }
        }
        Ok(())
    });
}
