//! Step definition: executed basic blocks, counted by compiler instrumentation, and every sixteen bytes processed by a
//! C library function or a compiled search. Nothing here calls another function, which would be counted, too.

use std::hint::black_box;

static mut STEPS: u64 = 0;

const fn add(bytes: usize) {
    unsafe { STEPS += bytes as u64 / 16 }
}

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc() {
    unsafe { STEPS += 1 }
}

macro_rules! last {
    ($last:ident) => { $last };
    ($first:ident $($rest:ident)+) => { last!($($rest)+) };
}

macro_rules! wrapped {
    ($($wrap:ident $real:ident ($($name:ident: $kind:ty),*) -> $result:ty;)*) => {
        unsafe extern "C" { $(fn $real($($name: $kind),*) -> $result;)* }
        $(#[unsafe(no_mangle)]
        unsafe extern "C" fn $wrap($($name: $kind),*) -> $result {
            unsafe {
                STEPS += last!($($name)*) as u64 / 16;
                $real($($name),*)
            }
        })*
    };
}

wrapped! {
    __wrap_memcpy __real_memcpy(to: *mut u8, from: *const u8, size: usize) -> *mut u8;
    __wrap_memmove __real_memmove(to: *mut u8, from: *const u8, size: usize) -> *mut u8;
    __wrap_memcmp __real_memcmp(one: *const u8, other: *const u8, size: usize) -> i32;
    __wrap_bcmp __real_bcmp(one: *const u8, other: *const u8, size: usize) -> i32;
    __wrap_memset __real_memset(to: *mut u8, byte: i32, size: usize) -> *mut u8;
}

include!(concat!(env!("OUT_DIR"), "/searches.rs"));

/// Number of steps of `work`.
pub fn count<T>(work: impl FnOnce() -> T) -> u64 {
    let before = unsafe { STEPS };
    drop(black_box(work()));
    unsafe { STEPS - before }
}
