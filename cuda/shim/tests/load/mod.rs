//! Functions of libraries that cargo built beside a test.

use std::ffi::{CStr, CString, c_void};

/// A function of such a library, which stays loaded, its names for all that are loaded later.
pub(crate) fn function(library: &str, name: &str) -> *mut c_void {
    let path = std::env::current_exe().unwrap().with_file_name(library);
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let name = CString::new(name).unwrap();
    // SAFETY: the libraries have no constructors that ask for anything; the names are strings.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        assert!(!handle.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
        let found = libc::dlsym(handle, name.as_ptr());
        assert!(!found.is_null(), "{name:?}");
        found
    }
}
