#![no_main]

// gix panics at some answers, and that is caught. Only panics of others are findings.
libfuzzer_sys::fuzz_target!(
    init: std::panic::set_hook(Box::new(|info| {
        if !info.location().is_some_and(|place| place.file().contains("/gix-")) {
            eprintln!("{info}");
            std::process::abort();
        }
    })),
    |data: &[u8]| convoke::fuzzing::protocol(data)
);
