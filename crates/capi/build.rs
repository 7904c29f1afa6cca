//! Linker flags of the C library.

/// Number of the library's interface. It grows when programs must be compiled again.
const INTERFACE: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtenon.so.{INTERFACE}");
    // The threads of the library do not end, so its code must stay.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
