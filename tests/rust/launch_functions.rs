//! Kernels that known functions of Rust launch, on the stand-in. Each launch has its function's number as grid.x in
//! blocks. Commands: work N, quit; each answers with its name.

use std::ffi::{c_char, c_void};
use std::io::BufRead;
use std::ptr::{null, null_mut};

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3([u32; 3]);

#[repr(C)]
struct Wrapper(u32, u32, *const c_void, *const c_void);

unsafe extern "C" {
    fn hipLaunchKernel(
        function: *const c_void,
        grid: Dim3,
        block: Dim3,
        arguments: *mut *mut c_void,
        shared: usize,
        stream: *mut c_void,
    ) -> i32;
    fn hipDeviceSynchronize() -> i32;
    fn __hipRegisterFatBinary(wrapper: *const Wrapper) -> *mut *mut c_void;
    fn __hipRegisterFunction(
        modules: *mut *mut c_void,
        host: *const c_void,
        device: *const c_char,
        name: *const c_char,
        limit: u32,
        tid: *mut c_void,
        bid: *mut c_void,
        block: *mut c_void,
        grid: *mut c_void,
        size: *mut i32,
    );
}

extern "C" fn scale() {}

fn register() {
    let wrapper = Box::leak(Box::new(Wrapper(0x4849_5046, 1, null(), null())));
    let (host, none) = (scale as *const c_void, null_mut());
    unsafe {
        let modules = __hipRegisterFatBinary(wrapper);
        let name = c"scale".as_ptr();
        __hipRegisterFunction(
            modules,
            host,
            name,
            name,
            u32::MAX,
            none,
            none,
            none,
            none,
            null_mut(),
        );
    }
}

#[inline(always)]
fn launch(number: u32) -> i32 {
    let (grid, block) = (Dim3([number, 1, 1]), Dim3([64, 1, 1]));
    let host = scale as *const c_void;
    // What is left to do after it keeps the caller's frame.
    std::hint::black_box(unsafe { hipLaunchKernel(host, grid, block, null_mut(), 0, null_mut()) })
}

#[inline(never)]
fn first() -> i32 {
    launch(1) + 1
}

#[inline(never)]
fn layers<const N: usize>() -> i32 {
    (0..N).map(|_| launch(2)).sum::<i32>() + 1
}

trait Forward {
    fn forward(&self, depth: u32) -> i32;
}

struct Net(i32);

impl Forward for Net {
    #[inline(never)]
    fn forward(&self, depth: u32) -> i32 {
        match depth {
            0 => launch(3) + self.0,
            _ => std::hint::black_box(self.forward(depth - 1)) + 1,
        }
    }
}

#[inline(never)]
fn in_thread() -> i32 {
    launch(4) + 1
}

/// A panic that is caught passes through frames that launch.
#[inline(never)]
fn panics() -> i32 {
    let error = launch(5);
    if std::hint::black_box(error) == 0 {
        std::panic::resume_unwind(Box::new(7));
    }
    error
}

#[inline(never)]
fn work() -> i32 {
    let net: Box<dyn Forward> = Box::new(Net(2));
    let sum = first() + layers::<3>() + net.forward(4);
    let of_thread = std::thread::spawn(in_thread).join().unwrap_or(0);
    let caught = std::panic::catch_unwind(panics).is_err();
    sum + of_thread + i32::from(caught)
}

fn main() {
    register();
    work();
    unsafe { hipDeviceSynchronize() };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap_or_default();
        let (word, rounds) = line.split_once(' ').unwrap_or((&line, "0"));
        for _ in 0..rounds.parse().unwrap_or(0) {
            work();
        }
        unsafe { hipDeviceSynchronize() };
        println!("{word}");
        if word == "quit" {
            return;
        }
    }
}
